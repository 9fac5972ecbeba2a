//! Waiting for something rare beside something frequent.
//!
//! In a `select!` the end of a watch (its timeout, the server's drain) would be polled with every event, and each such poll
//! takes a lock that all connections share. [`Quiet`] polls a future only after that future has asked for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;
use tokio::time::{Instant, Sleep};

/// A future that costs next to nothing to poll until it is ready.
pub struct Quiet<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
}

/// What the future rings when it wants to be polled.
struct Bell {
    rung: AtomicBool,
    owner: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.owner.wake();
    }
}

impl<F> Quiet<F> {
    pub fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            bell: Arc::new(Bell {
                rung: AtomicBool::new(true),
                owner: AtomicWaker::new(),
            }),
        }
    }
}

impl<F: Future> Future for Quiet<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Before the look at the bell: a ring in between then wakes the owner.
        self.bell.owner.register(cx.waker());
        if !self.bell.rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        self.bell.rung.store(false, Ordering::Relaxed);
        let waker = Waker::from(self.bell.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

/// A timer that can be set again.
pub type Alarm = Quiet<Sleep>;

impl Alarm {
    pub fn at(when: Instant) -> Self {
        Self::new(tokio::time::sleep_until(when))
    }

    pub fn set(&mut self, when: Instant) {
        self.future.as_mut().reset(when);
        self.bell.rung.store(true, Ordering::Relaxed);
    }

    pub fn when(&self) -> Instant {
        self.future.deadline()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_alarm_rings_when_it_is_due_and_can_be_set_again() {
        let began = Instant::now();
        let mut alarm = Alarm::at(began + Duration::from_secs(60));
        (&mut alarm).await;
        assert_eq!(began.elapsed().as_secs(), 60);
        alarm.set(began + Duration::from_secs(90));
        (&mut alarm).await;
        assert_eq!(began.elapsed().as_secs(), 90);
    }

    #[tokio::test]
    async fn the_future_is_polled_only_when_it_asks_and_its_owner_is_woken_then() {
        let (drain, polls) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        let (mut inner, counted) = (Box::pin(drain.clone().cancelled_owned()), polls.clone());
        let mut quiet = Quiet::new(std::future::poll_fn(move |cx| {
            counted.fetch_add(1, Ordering::Relaxed);
            inner.as_mut().poll(cx)
        }));
        for _ in 0..10 {
            assert!(futures::poll!(&mut quiet).is_pending());
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        let waiting = tokio::spawn(quiet);
        drain.cancel();
        waiting.await.unwrap();
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }
}
