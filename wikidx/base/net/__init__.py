"""Downloads, and requests to other machines.

download   resumable, verified download of one file      endpoint   requests to a model's HTTP endpoint
transport  HTTP connections, time limits, redirects, and what a failure was
retrying   which failures are followed by a retry, and when
request_threads  threads that wait for servers, and are waited for by nobody
"""
