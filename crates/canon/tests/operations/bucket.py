"""A server of S3's protocol for tests: moto, with one user whose signatures it checks, and one bucket.

It prints its port and the user's two keys on one line, and ends with its standard input.
"""

import json
import logging
import sys
import urllib.request

import boto3
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
at = f"http://{host}:{port}"
anyone = {
    "endpoint_url": at,
    "region_name": "us-east-1",
    "aws_access_key_id": "anyone",
    "aws_secret_access_key": "anyone",
}
iam = boto3.client("iam", **anyone)
iam.create_user(UserName="canon")
statement = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
policy = {"Version": "2012-10-17", "Statement": [statement]}
iam.put_user_policy(
    UserName="canon", PolicyName="all", PolicyDocument=json.dumps(policy)
)
keys = iam.create_access_key(UserName="canon")["AccessKey"]
boto3.client("s3", **anyone).create_bucket(Bucket="backups")
# From here on every request needs a signature.
count = urllib.request.Request(
    f"{at}/moto-api/reset-auth",
    data=b"0",
    headers={"Content-Type": "application/octet-stream"},
)
urllib.request.urlopen(count)
print(port, keys["AccessKeyId"], keys["SecretAccessKey"], flush=True)
sys.stdin.read()
server.stop()
