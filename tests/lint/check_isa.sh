#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernels of each instruction set have no instruction beyond it: the AVX-512F object must run on Knights Landing
# (no VL, BW, DQ, VBMI, VNNI ...; and no ER or PF, which nothing newer has), the AVX2 object on a machine without
# AVX-512 or FMA, the scalar one on any x86-64. Allowed instructions are listed, not forbidden ones. The check first
# proves on small assembled files that it detects each kind.
#
# Small calls have no string instruction, which takes 10 to 20 ns, and prefetch what peers have written. gcc uses such
# instructions to clear structs of 64 bytes or more, and drops calls of functions that only prefetch.
set -u

objects=${TEST_BUILD:?}/kernels/CMakeFiles/twill_kernels.dir
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

case $(uname -m) in
x86_64 | amd64) ;;
*) echo "not x86-64: skipped"; exit 77 ;;
esac
command -v objdump >/dev/null || { echo "no objdump: skipped"; exit 77; }
# inspect <isa> <object>: print each instruction that does not belong; fail if there is one.
inspect() {
    objdump -d -w "$2" >"$work/text" || return 2
    awk -F'\t' -v isa="$1" '
    function bad(why) { print why ": " $3; count++ }
    BEGIN {
        # AVX-512 F and CD on 512 bits, after the letter v
        wide = "^v((add|sub|mul|div|min|max|sqrt)(ps|pd)|cmp[a-z_]*(ps|pd)|f(n?m(add|sub)|maddsub|msubadd)[123]*(ps|pd)" \
            "|movap[sd]|movup[sd]|movntp[sd]|movntdqa?|movdq[au](32|64)|movs[hl]dup|movddup" \
            "|p(add|sub|and|andn|or|xor|ternlog|abs|broadcast|min[su]|max[su])(d|q)|pmulld|pmulu?dq" \
            "|pcmp[a-z]*(d|q)|ptestn?m(d|q)|p(sll|srl)v?(d|q)|psrav?(d|q)|pro[lr]v?(d|q)|pblendm(d|q)|blendm(ps|pd)" \
            "|pmov(s?|us)(db|dw|qb|qw|qd)|pmov[sz]x(bd|bq|wd|wq|dq)" \
            "|cvtph2ps|cvtps2ph|cvtt?p[sd]2u?dq|cvtu?dq2p[sd]|cvtps2pd|cvtpd2psx?" \
            "|broadcast(ss|sd|[fi]32x4|[fi]64x4)|(extract|insert)[fi](32x4|64x4)|shuf[fi](32x4|64x2)" \
            "|perm([it]2)?(ps|pd|d|q)|permilp[sd]|perm[dq]|perm[it]2[dq]|pshufd|shufp[sd]|unpck[lh]p[sd]|punpck[lh](dq|qdq)|valign[dq]|align[dq]" \
            "|p?(compress|expand)(d|q|ps|pd)|p?gather[dq][dqps]+|p?scatter[dq][dqps]+|fixupimmp[sd]|get(exp|mant)p[sd]|rcp14p[sd]|rsqrt14p[sd]|rndscalep[sd]|scalefp[sd]" \
            "|pconflict[dq]|plzcnt[dq])$"
        # ... and on one element
        scalar = "^v((add|sub|mul|div|min|max|sqrt|getexp|getmant|rcp14|rsqrt14|rndscale|scalef|fixupimm)s[sd]|cmp[a-z_]*s[sd]|u?comis[sd]|movs[sd]|mov[dq]" \
            "|f(n?m(add|sub))[123]*s[sd]|cvtt?s[sd]2u?si[lq]?|cvtu?si2s[sd][lq]?|cvtss2sd|cvtsd2ss|insertps|extractps)$"
        masks = "^(kmovw|kandw|kandnw|korw|kxorw|kxnorw|knotw|kortestw|kunpckbw|kshift[lr]w)$"
        # VEX-encoded, and newer than Haswell
        newer = "^v?(pdp|pmadd52|cvtne|bcstne|gf2p8|aes|pclmul|sha|sm3|sm4)"
    }
    NF >= 3 {
        # legacy prefixes, then the byte that tells the encoding
        n = split($2, byte, " ")
        for (i = 1; i < n && byte[i] ~ /^(26|2e|36|3e|64|65|66|67|f0|f2|f3)$/; i++)
            ;
        evex = byte[i] == "62"; vex = byte[i] == "c4" || byte[i] == "c5"
        split($3, word, " ")
        name = word[1] ~ /^\{/ ? word[2] : word[1] # "{vex} vpdpbusd ..."
        total++
        if (isa == "scalar" && (vex || evex)) bad("not SSE2")
        if (isa == "avx2" && (evex || $3 ~ /%zmm|%k[0-7]/)) bad("not AVX2")
        if (isa == "avx2" && name ~ /^vf(n?m(add|sub)|maddsub|msubadd)[123]/) bad("FMA")
        if (vex && name ~ newer) bad("not AVX2")
        if (name ~ /^k/ && name !~ masks) bad("mask instruction above AVX-512F")
        if (isa == "avx512f" && evex && name !~ scalar) {
            # "vcvttpd2dq (%rax),%ymm0" reads 512 bits: the length is in the fourth byte
            if ($3 !~ /%zmm/ && byte[i + 3] !~ /^[45cd]/) bad("VL")
            else if (name !~ wide) bad("above AVX-512F")
        }
    }
    END { if (!total) { print "no instructions found"; count++ } exit count > 0 }
    ' "$work/text"
}

# expect <pass|fail> <isa> <instruction>
failures=0
expect() {
    printf '%s\n' "$3" >"$work/proof.s"
    as -o "$work/proof.o" "$work/proof.s" || { failures=$((failures + 1)); return; }
    if inspect "$2" "$work/proof.o" >/dev/null; then seen=pass; else seen=fail; fi
    [ "$seen" = "$1" ] || { echo "proof: $2 '$3' should $1"; failures=$((failures + 1)); }
}

while read -r answer isa instruction; do
    expect "$answer" "$isa" "$instruction"
done <<'PROOFS'
pass avx512f vaddps (%rax), %zmm1, %zmm2{%k1}
pass avx512f vpternlogd $0xd4, %zmm1, %zmm2, %zmm3
pass avx512f vcvtps2ph $8, %zmm1, %ymm2
pass avx512f vcvtusi2ssl %eax, %xmm1, %xmm2
pass avx512f vcmpunordps %zmm1, %zmm1, %k1
pass avx512f vextracti64x4 $1, %zmm1, %ymm2
pass avx512f vpaddb %ymm1, %ymm2, %ymm3
pass avx512f kmovw %eax, %k1
pass avx512f vcvttpd2dq (%rax){1to8}, %ymm1
fail avx512f vcvttpd2dqy (%rax), %xmm16
fail avx512f vaddps %ymm1, %ymm2, %ymm3{%k1}
fail avx512f vaddps %ymm16, %ymm2, %ymm3
fail avx512f vmovdqu64 %xmm17, (%rax)
fail avx512f vmovdqu8 (%rax), %zmm1
fail avx512f vpaddb %zmm1, %zmm2, %zmm3
fail avx512f vpaddw %zmm1, %zmm2, %zmm3
fail avx512f vpblendmw %zmm1, %zmm2, %zmm3{%k1}
fail avx512f vpmullq %zmm1, %zmm2, %zmm3
fail avx512f vandps %zmm1, %zmm2, %zmm3
fail avx512f vorpd %zmm1, %zmm2, %zmm3
fail avx512f vinserti64x2 $1, %xmm1, %zmm2, %zmm3
fail avx512f vextractf32x8 $1, %zmm1, %ymm2
fail avx512f vcvtqq2pd %zmm1, %zmm2
fail avx512f vcvtpd2qq %zmm1, %zmm2
fail avx512f vrangeps $1, %zmm1, %zmm2, %zmm3
fail avx512f vreducepd $1, %zmm1, %zmm2
fail avx512f vpmovd2m %zmm1, %k1
fail avx512f kmovd %eax, %k1
fail avx512f kmovq %rax, %k1
fail avx512f kmovb %eax, %k1
fail avx512f kaddw %k1, %k2, %k3
fail avx512f vexp2ps %zmm1, %zmm2
fail avx512f vrcp28ps %zmm1, %zmm2
fail avx512f vrsqrt28pd %zmm1, %zmm2
fail avx512f vgatherpf0dps (%rax,%zmm1,4){%k1}
fail avx512f vscatterpf1qpd (%rax,%zmm1,8){%k1}
fail avx512f vpermb %zmm1, %zmm2, %zmm3
fail avx512f vpdpbusd %zmm1, %zmm2, %zmm3
fail avx512f vcvtneps2bf16 %zmm1, %ymm2
fail avx512f vpopcntd %zmm1, %zmm2
fail avx512f {vex} vpdpbusd %ymm1, %ymm2, %ymm3
pass avx2 vaddps %ymm1, %ymm2, %ymm3
pass avx2 vcvtph2ps %xmm1, %ymm2
fail avx2 vaddps %zmm1, %zmm2, %zmm3
fail avx2 vaddps %ymm16, %ymm2, %ymm3
fail avx2 kmovw %eax, %k1
fail avx2 vfmadd231ps %ymm1, %ymm2, %ymm3
pass scalar addps %xmm1, %xmm2
fail scalar vaddps %xmm1, %xmm2, %xmm3
PROOFS
[ "$failures" -eq 0 ] || { echo "the check itself fails $failures proofs"; exit 1; }

for file in scalar pairs avx2 avx512f; do
    isa=$file
    [ "$file" != pairs ] || isa=scalar
    object=$objects/$file.c.o
    [ -f "$object" ] || { echo "$object is missing"; failures=$((failures + 1)); continue; }
    inspect "$isa" "$object" >"$work/found" && continue
    echo "$file: $(wc -l <"$work/found") instructions above it:"
    sed 20q "$work/found"
    failures=$((failures + 1))
done

# inspect_small_calls <library>: print what is wrong with the code of small calls; fail if something is.
inspect_small_calls() {
    objdump -d --no-show-raw-insn "$1" | awk '
    /^[0-9a-f]+ <.*>:$/ {
        at = $2
        small = at ~ /^<(twill_((all)?reduce|broadcast|gather|scatter|call_run|request_(prepare|begin))|call_run)>:$/
    }
    small && /rep (stos|movs)/ {print at " has a string instruction"; wrong = 1}
    at == "<twill_run_at_once>:" && /prefetch/ {fetches++}
    END {if (!fetches) print "twill_run_at_once prefetches nothing"; exit wrong || !fetches}'
}
if [ -n "${TEST_BUILD:-}" ] && grep -q '^CMAKE_BUILD_TYPE:.*=Release' "$TEST_BUILD/CMakeCache.txt"; then
    inspect_small_calls "$TEST_BUILD/lib/libtwill.so" || failures=$((failures + 1))
    inspect_small_calls "$objects/scalar.c.o" >"$work/found" && { echo "no proof of prefetches"; failures=$((failures + 1)); }
fi
[ "$failures" -eq 0 ] && echo "scalar, pairs, avx2, avx512f: only instructions of their own"
exit "$failures"
