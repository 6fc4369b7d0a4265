# SPDX-License-Identifier: Apache-2.0
"""Run what a JobSet runs in a pod: pod.py FILE INDEX [NAME=VALUE...]. The values replace those of the file."""
import os
import sys

import yaml

with open(sys.argv[1], encoding="utf-8") as file:
    job = yaml.safe_load(file)["spec"]["replicatedJobs"][0]["template"]["spec"]
container = job["template"]["spec"]["containers"][0]
given = dict(word.split("=", 1) for word in sys.argv[3:])
values = {entry["name"]: given.get(entry["name"], entry.get("value")) for entry in container["env"]}
values["JOB_COMPLETION_INDEX"] = sys.argv[2]
os.execvpe(container["command"][0], container["command"], {**os.environ, **values})
