# SPDX-License-Identifier: Apache-2.0
"""A name server (RFC 1035) that learns of a name late: late_names.py LISTEN NAME ADDRESS QUESTIONS LOG. It says that the
name does not exist for so many questions of its address, and then has it. No other name exists."""
import socket
import struct
import sys

listen, known, address, late, log = sys.argv[1:]
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((listen, 53))
asked = 0
with open(log, "w", encoding="utf-8", buffering=1) as out:
    print("ready", file=out)
    while True:
        query, client = server.recvfrom(512)
        at, labels = 12, []
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += 1 + query[at]
        kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
        is_known = ".".join(labels).lower() == known
        asked += is_known and kind == 1
        exists = is_known and asked > int(late)
        answer = b""
        if exists and kind == 1:  # A
            answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(address)
        flags = 0x8580 | (0 if exists else 3)  # NXDOMAIN
        server.sendto(query[:2] + struct.pack(">HHHHH", flags, 1, bool(answer), 0, 0) + query[12 : at + 5] + answer, client)
        print(".".join(labels), kind, "exists" if exists else "does not exist", file=out)
