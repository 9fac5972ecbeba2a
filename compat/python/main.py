"""Checks a server with the Python client `kubernetes`: prints `ok` or `FAIL` for each claim, and ends with 1 if one failed.

  main.py --kubeconfig FILE [--expired-version N --expired-token TOKEN]    both of the configmaps in the namespace `expired`
"""
import argparse
import os
import sys
import traceback
import uuid

from kubernetes import client, config, dynamic

import custom
import objects
import watches
import workloads


class Clients:
    """What a claim has at hand; the namespace is its own."""

    def __init__(self, kubeconfig, expired):
        config.load_kube_config(config_file=kubeconfig)
        self.api = client.ApiClient()
        self.core, self.apps, self.batch = client.CoreV1Api(), client.AppsV1Api(), client.BatchV1Api()
        self.dynamic = dynamic.DynamicClient(self.api)
        self.expired, self.namespace = expired, None

    def in_a_namespace(self):
        self.namespace = f"python-{uuid.uuid4().hex[:8]}"
        self.core.create_namespace({"metadata": {"name": self.namespace}})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--expired-version")
    parser.add_argument("--expired-token")
    a = parser.parse_args()
    clients = Clients(a.kubeconfig, (a.expired_version, a.expired_token))
    failed = 0
    for says, try_it in objects.CLAIMS + workloads.CLAIMS + custom.CLAIMS + watches.CLAIMS:
        try:
            clients.in_a_namespace()
            try_it(clients)
        except Exception as error:
            failed += 1
            print(f"FAIL {says}: {type(error).__name__} {error}", flush=True)
            traceback.print_exc()
        else:
            print(f"ok {says}", flush=True)
    # The client's threads go on for ever; an orderly end would trip over them.
    sys.stdout.flush()
    os._exit(1 if failed else 0)


if __name__ == "__main__":
    main()
