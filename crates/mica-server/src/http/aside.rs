//! Where the connections of a loud plane run: on threads of their own, which yield the processors to everybody else.
//!
//! Seats and turns bound what a plane has under way, but not what its connections cost before and after: TLS, parsing, the
//! events of its watches. A plane that asks faster than its turns come is loud ([`Plane::loud`]) for a while, and its connections move to
//! these threads and back. They are one fewer than there are processors, let every other thread go first after each step,
//! and are interrupted sooner than others: a quiet plane's request finds a processor.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

use crate::plane::Plane;

/// How much the threads yield: a tenth of a usual thread's part while all want to run. Who holds a lock that others wait
/// for must get on with it, so it is not the least there is.
const NICE: i32 = 10;

type Connection = BoxFuture<'static, ()>;

/// The threads; started when they are first needed.
#[derive(Default)]
pub struct Aside {
    runtime: Mutex<Option<Runtime>>,
}

impl Aside {
    /// Runs a connection to its end, here while it is quiet and aside while it is loud.
    pub async fn run<L>(&self, mut connection: Connection, is_loud: L)
    where
        L: Fn() -> bool + Clone + Send + Unpin + 'static,
    {
        loop {
            let here = While {
                connection: Some(connection),
                stays: {
                    let is_loud = is_loud.clone();
                    move || !is_loud()
                },
                manners: Manners::GoesOn,
            };
            let Some(left) = here.await else { return };
            let Some(handle) = self.handle() else {
                // No threads are to be had: it goes on here.
                return left.await;
            };
            let aside = While {
                connection: Some(left),
                stays: is_loud.clone(),
                manners: Manners::Yields,
            };
            // It ends without an answer if it panicked, and with its runtime.
            let Ok(Some(back)) = handle.spawn(aside).await else {
                return;
            };
            connection = back;
        }
    }

    fn handle(&self) -> Option<tokio::runtime::Handle> {
        let mut runtime = self.runtime.lock();
        if runtime.is_none() {
            match start() {
                Ok(started) => *runtime = Some(started),
                Err(error) => tracing::warn!(%error, "no threads for loud planes"),
            }
        }
        runtime.as_ref().map(|runtime| runtime.handle().clone())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.lock().take() {
            // Waiting is not allowed among tasks; what still ran belongs to nobody.
            runtime.shutdown_background();
        }
    }
}

fn start() -> std::io::Result<Runtime> {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    Builder::new_multi_thread()
        .thread_name("mica-aside")
        .worker_threads(processors.saturating_sub(1).max(1))
        .on_thread_start(|| {
            // Of a thread, not of the process: on Linux each has its own.
            if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE) {
                tracing::warn!(%error, "threads for loud planes do not yield to others");
            }
        })
        .enable_all()
        .build()
}

/// Polls a connection as long as it is to stay; then gives it back. `None` once the connection has ended.
struct While<S> {
    connection: Option<Connection>,
    stays: S,
    manners: Manners,
}

/// What a thread does after each look at a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manners {
    GoesOn,
    /// Lets every other thread go first.
    Yields,
}

impl<S: Fn() -> bool + Unpin> Future for While<S> {
    type Output = Option<Connection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(None);
        };
        if connection.as_mut().poll(cx).is_ready() {
            self.connection = None;
            return Poll::Ready(None);
        }
        if (self.stays)() {
            if self.manners == Manners::Yields {
                // The kernel lets a thread that runs run on for some milliseconds, whoever wakes meanwhile.
                std::thread::yield_now();
            }
            return Poll::Pending;
        }
        // Whoever polls it next is the one that is woken.
        Poll::Ready(self.connection.take())
    }
}

/// The plane that a connection's requests were for last.
#[derive(Default)]
pub struct Company(arc_swap::ArcSwapOption<Plane>);

impl Company {
    /// The connection serves this plane now.
    pub fn keep(&self, plane: &Arc<Plane>) {
        let known = self.0.load();
        if known.as_ref().is_none_or(|known| !Arc::ptr_eq(known, plane)) {
            drop(known);
            self.0.store(Some(plane.clone()));
        }
    }

    pub fn is_loud(&self) -> bool {
        self.0.load().as_ref().is_some_and(|plane| plane.loud.is_loud())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_connection_moves_aside_while_it_is_loud_and_back_when_it_is_not() {
        let (ask, mut asked) = mpsc::unbounded_channel::<()>();
        let (say, mut said) = mpsc::unbounded_channel();
        let connection: Connection = Box::pin(async move {
            while asked.recv().await.is_some() {
                let name = std::thread::current().name().unwrap_or_default().to_owned();
                say.send(name == "mica-aside").unwrap();
            }
        });
        let loud = Arc::new(AtomicBool::new(false));
        let is_loud = {
            let loud = loud.clone();
            move || loud.load(Ordering::Relaxed)
        };
        let running = tokio::spawn(async move { Aside::default().run(connection, is_loud).await });
        for aside in [false, true, true, false] {
            loud.store(aside, Ordering::Relaxed);
            // What it has begun it finishes where it is.
            loop {
                ask.send(()).unwrap();
                if said.recv().await == Some(aside) {
                    break;
                }
            }
        }
        drop(ask);
        running.await.unwrap();
    }
}
