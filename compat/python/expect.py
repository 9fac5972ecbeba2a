"""What claims say about answers: equality with a useful complaint, and errors as the client shows them."""
import json
import time

from kubernetes.client.exceptions import ApiException

PATIENCE_SECONDS = 30


def equal(got, want, what="it"):
    if got != want:
        raise AssertionError(f"{what} is {got!r} and should be {want!r}")


def refused(call, code, reason, message=None):
    """The Status that a call is refused with: its code, reason and (a part of) its message, also in the exception's body."""
    try:
        answer = call()
    except ApiException as error:
        status = json.loads(error.body)
        equal((error.status, status.get("kind"), status.get("code"), status.get("reason")), (code, "Status", code, reason), "the refusal")
        equal(error.headers["Content-Type"], "application/json", "the refusal's type")
        if message is not None and message not in status["message"]:
            raise AssertionError(f"the message is {status['message']!r} and should say {message!r}") from None
        return status
    raise AssertionError(f"it was not refused: {answer}")


def eventually(holds):
    """Waits for a state and returns it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (state := holds()):
        if time.monotonic() > deadline:
            raise AssertionError("waited in vain")
        time.sleep(0.02)
    return state
