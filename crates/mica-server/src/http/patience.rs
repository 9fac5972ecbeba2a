//! The one timer of an HTTP/1 connection.
//!
//! The HTTP library wants a new timer for each request's head, and making, registering and cancelling one takes the timer
//! wheel's lock each time. Here all of them share one that is set again only when it rings, which for a busy connection is
//! once in the time of the timeout.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::quiet::Alarm;

#[derive(Clone, Default)]
pub(super) struct Patience(Arc<Mutex<Option<Alarm>>>);

struct Wait {
    until: Instant,
    alarm: Patience,
}

impl hyper::rt::Timer for Patience {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, until: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Wait {
            until,
            alarm: self.clone(),
        })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl hyper::rt::Sleep for Wait {}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let until = self.until.into();
        let mut shared = self.alarm.0.lock();
        let alarm = shared.get_or_insert_with(|| Alarm::at(until));
        if alarm.when() > until {
            alarm.set(until);
        }
        loop {
            ready!(Pin::new(&mut *alarm).poll(cx));
            // It rang for a wait that is over.
            if alarm.when() < until {
                alarm.set(until);
                continue;
            }
            // The next wait sets it anew.
            *shared = None;
            return Poll::Ready(());
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::rt::Timer as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_wait_ends_at_its_own_time() {
        let timer = Patience::default();
        let began = timer.now();
        let mut given_up = timer.sleep_until(began + Duration::from_secs(60));
        assert!(futures::poll!(&mut given_up).is_pending());
        drop(given_up);
        tokio::time::advance(Duration::from_secs(30)).await;
        for (wait, end) in [(60, 90), (5, 95), (100, 195)] {
            timer.sleep(Duration::from_secs(wait)).await;
            assert_eq!((timer.now() - began).as_secs(), end);
        }
        let long = timer.sleep(Duration::from_secs(100));
        let mut short = timer.sleep(Duration::from_secs(1));
        let mut long = Box::into_pin(Box::new(long));
        assert!(futures::poll!(&mut long).is_pending());
        (&mut short).await;
        assert_eq!((timer.now() - began).as_secs(), 196);
    }
}
