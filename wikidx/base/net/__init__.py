"""Downloads, and requests to other machines.

download   resumable, verified download of one file      endpoint   requests to a model's HTTP endpoint, with retries
timed_http HTTP connections with a time limit on the whole answer
request_threads  threads that wait for servers, and are waited for by nobody
"""
