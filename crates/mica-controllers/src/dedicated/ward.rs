//! One server under supervision: a task that does what is ordered, and sees to it that the server runs.
//!
//! It waits for the end of the process and for orders, and for nothing else while the server is well. Whatever it does can
//! be done again: if it is given up at any point, another one begins from the record and from what runs.

use std::sync::Arc;
use std::time::Duration;

use mica_api::control_plane::DeletionPolicy;
use tokio::sync::watch;
use tokio::time::Instant;

use super::launch;
use super::pid::{Ended, Process};
use super::place::Place;
use super::plan::{Observed, Run, Step, failures_after, pause, plan};
use super::record::{Kept, Paths, Record, write_private};
use super::storage::{Address, Storage};
use super::version::{Binary, Build, may_follow};
use super::{Refused, Wanted};
use crate::control_plane::Home;

/// What every server answers to its administrator when it can be used.
const PROBE: &str = "/apis/mica.dev/v1alpha1/planes?limit=1";
/// Between looks at a server that starts. They become longer.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_millis(500);
/// How long one look may take.
const LOOK: Duration = Duration::from_secs(10);
/// How long a server may take to be ready: long enough to read a large store on a busy machine.
const START: Duration = Duration::from_secs(300);
/// How long a server may take to end when it is asked to: more than requests get.
const STOP: Duration = Duration::from_secs(30);

/// What is to become of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    Run(Wanted),
    Retire(DeletionPolicy),
    /// It ends, and is started when somebody asks for it again.
    Halt,
}

/// Why an order was not carried out. It says nothing of another order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub to: Order,
    pub refused: Refused,
}

/// How a server stands.
#[derive(Clone)]
pub enum Standing {
    Pending(String),
    Running {
        home: Home,
        version: String,
        /// Why it is not what was ordered.
        held: Option<Answer>,
    },
    Refused(Answer),
    /// Nothing runs, and nobody supervises it any more.
    Over,
}

impl Standing {
    /// The same without what is the answer to another order than this.
    pub fn after(self, order: &Order) -> Self {
        match self {
            Self::Refused(answer) if answer.to != *order => Self::Pending("the server is being looked at".to_owned()),
            Self::Running { home, version, held } => Self::Running {
                home,
                version,
                held: held.filter(|answer| answer.to == *order),
            },
            other => other,
        }
    }

    /// The same to whoever listens.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pending(one), Self::Pending(other)) => one == other,
            (Self::Refused(one), Self::Refused(other)) => one == other,
            (Self::Over, Self::Over) => true,
            (
                Self::Running { home, version, held },
                Self::Running {
                    home: other_home,
                    version: other_version,
                    held: other_held,
                },
            ) => home.url == other_home.url && version == other_version && held == other_held,
            _ => false,
        }
    }
}

/// What is to be started.
struct Target {
    run: Run,
    binary: Binary,
    address: Address,
}

/// A process, and what is known of it.
struct Runs {
    process: Process,
    since: Instant,
    ready: Option<(Instant, Home)>,
}

pub struct Ward {
    pub place: Arc<Place>,
    pub storage: Arc<dyn Storage>,
    pub name: String,
    pub paths: Paths,
    pub record: Option<Record>,
    pub standing: watch::Sender<Standing>,
    runs: Option<Runs>,
    /// Ends and failed starts in a row.
    failures: u32,
    /// Refusals in a row.
    refusals: u32,
    ended: Option<Instant>,
}

impl Ward {
    pub fn new(
        place: Arc<Place>,
        storage: Arc<dyn Storage>,
        (name, paths, record): (String, Paths, Option<Record>),
        standing: watch::Sender<Standing>,
    ) -> Self {
        Self {
            place,
            storage,
            name,
            paths,
            record,
            standing,
            runs: None,
            failures: 0,
            refusals: 0,
            ended: None,
        }
    }

    /// Does what is ordered until the server is over, or nobody gives orders any more: then it is left as it is.
    pub async fn run(mut self, mut orders: watch::Receiver<Order>) {
        loop {
            let order = orders.borrow_and_update().clone();
            let done = match &order {
                Order::Run(wanted) => self.keep(wanted, &mut orders).await.map(|()| false),
                Order::Retire(policy) => self.retire(*policy).await.map(|()| true),
                Order::Halt => self.halt().await.map(|()| true),
            };
            match done {
                Ok(true) => {
                    self.say(Standing::Over);
                    return;
                }
                Ok(false) => {}
                Err(refused) => {
                    tracing::warn!(server = %self.name, %refused, "a dedicated server is in trouble");
                    self.failures = self.failures.saturating_add(1);
                    self.say(Standing::Refused(Answer { to: order, refused }));
                    let _ = tokio::time::timeout(pause(self.failures), orders.changed()).await;
                }
            }
            if orders.has_changed().is_err() {
                return;
            }
        }
    }

    fn say(&self, standing: Standing) {
        let said = self.standing.send_if_modified(|current| {
            let other = !current.is_like(&standing);
            *current = standing;
            other
        });
        if said {
            self.place.tell(&self.name);
        }
    }

    /// One step towards a server as it is wanted.
    async fn keep(&mut self, wanted: &Wanted, orders: &mut watch::Receiver<Order>) -> Result<(), Refused> {
        self.find()?;
        let target = self.target(wanted).await;
        let running = self.runs.is_some().then(|| self.record.as_ref()?.run.clone()).flatten();
        let step = plan(&Observed {
            running: running.as_ref(),
            wanted: target.as_ref().ok().map(|target| &target.run),
            failures: self.failures,
            rested: self.ended.map_or(Duration::MAX, |ended| ended.elapsed()),
        });
        match (step, target) {
            (Step::Watch, target) => {
                let to = Order::Run(wanted.clone());
                let held = target.err().map(|refused| Answer { to, refused });
                self.watch(held, orders).await;
                Ok(())
            }
            (Step::Rest(rest), _) => {
                let _ = tokio::time::timeout(rest, orders.changed()).await;
                Ok(())
            }
            (Step::Stop, Ok(target)) => {
                let from = running.map(|run| run.build.version).unwrap_or_default();
                let message = match target.run.build.version {
                    to if to == from => "the server is started anew, on another store address".to_owned(),
                    to => format!("the server goes from version {from} to {to}"),
                };
                tracing::info!(server = %self.name, "{message}");
                self.say(Standing::Pending(message));
                self.stop().await
            }
            (Step::Start, Ok(target)) => self.start(wanted, target).await,
            (_, Err(refused)) => {
                let to = Order::Run(wanted.clone());
                let refusing = refused.clone();
                self.say(Standing::Refused(Answer { to, refused: refusing }));
                self.refusals = self.refusals.saturating_add(1);
                // Trouble may pass by itself; what cannot be accepted has to change first.
                let rest = match refused {
                    Refused::Failed { .. } => pause(self.refusals),
                    Refused::Unacceptable { .. } => Duration::MAX,
                };
                let _ = tokio::time::timeout(rest, orders.changed()).await;
                Ok(())
            }
            (Step::Refuse, Ok(_)) => Ok(()),
        }
    }

    /// What a server as it is wanted would be started as.
    async fn target(&self, wanted: &Wanted) -> Result<Target, Refused> {
        let record = self.record.as_ref();
        let binary = self.place.binary(wanted.version.as_deref())?;
        let formats = self.place.formats(&binary).await?;
        let build = Build {
            version: binary.version.clone(),
            format: self.storage.format(formats),
        };
        let last = record.and_then(|record| record.run.as_ref());
        may_follow(last.map(|run| &run.build), &build).map_err(|skew| Refused::version(skew.to_string()))?;
        let kept = record.and_then(|record| record.store.as_deref());
        let address = self.storage.address(wanted, &self.paths, kept)?;
        Ok(Target {
            run: Run {
                build,
                store: address.identity.clone(),
            },
            binary,
            address,
        })
    }

    /// Finds a process that an earlier run of the operator started.
    fn find(&mut self) -> Result<(), Refused> {
        let Some(record) = self.record.as_ref().filter(|_| self.runs.is_none()) else {
            return Ok(());
        };
        let failed = |error: std::io::Error| Refused::failed(format!("looking for the server's process: {error}"));
        let known = match &record.process {
            Some(identity) => Process::find(identity).map_err(failed)?,
            None => None,
        };
        let found = match known {
            Some(process) => Some(process),
            None => Process::serving(&self.paths.lock(), &self.paths.data()).map_err(failed)?,
        };
        if let Some(process) = found {
            tracing::info!(server = %self.name, pid = process.identity.pid, "found a dedicated server that runs");
            if let Some(record) = &mut self.record {
                record.process = Some(process.identity.clone());
            }
            self.save()?;
            self.runs = Some(Runs {
                process,
                since: Instant::now(),
                ready: None,
            });
        }
        Ok(())
    }

    async fn start(&mut self, wanted: &Wanted, target: Target) -> Result<(), Refused> {
        let failed = |error: std::io::Error| Refused::failed(format!("starting a server: {error}"));
        // What is pending after an end says why it ended, which is more.
        if self.failures == 0 || !matches!(*self.standing.borrow(), Standing::Pending(_)) {
            self.say(Standing::Pending("the server is being started".to_owned()));
        }
        self.refusals = 0;
        if self.record.as_ref().is_none_or(|record| record.run.is_none()) {
            let directory = &self.place.options.directory;
            self.storage.claim(&target.address, directory, &self.paths).await?;
        }
        let kept = self.record.as_ref().filter(|record| record.was_ready);
        let (port, new) = match kept {
            Some(record) => (record.port, None),
            None => {
                let port = self.place.pick_port(&self.name)?;
                (port, Some(port))
            }
        };
        let was_ready = kept.is_some();
        let store = target.address.store;
        let arguments = launch::arguments(&self.place.options, &self.paths, port, store.as_deref());
        let mut record = Record {
            provider: self.storage.kind().to_owned(),
            wanted: wanted.clone(),
            port,
            was_ready,
            run: Some(target.run),
            process: None,
            store,
        };
        let saved = record.save(&self.paths);
        if let Some(port) = new {
            self.place.port_is_settled(port);
        }
        saved.map_err(failed)?;
        let process = launch::spawn(&target.binary.path, &arguments, &self.paths).map_err(failed)?;
        record.process = Some(process.identity.clone());
        self.record = Some(record);
        self.runs = Some(Runs {
            process,
            since: Instant::now(),
            ready: None,
        });
        self.save()?;
        for kept in [self.paths.keeps(), self.paths.retained()] {
            if kept.exists() {
                std::fs::remove_file(kept).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn save(&self) -> Result<(), Refused> {
        match &self.record {
            Some(record) => record
                .save(&self.paths)
                .map_err(|error| Refused::failed(format!("{error}"))),
            None => Ok(()),
        }
    }

    /// Waits until the server ends, or something else is ordered. Tells when it is ready.
    async fn watch(&mut self, held: Option<Answer>, orders: &mut watch::Receiver<Order>) {
        let Some(runs) = &mut self.runs else { return };
        if runs.ready.is_none() {
            let patience = runs.since + START;
            tokio::select! {
                ended = runs.process.ended() => return self.note_end(ended),
                _ = orders.changed() => return,
                () = tokio::time::sleep_until(patience) => {
                    tracing::warn!(server = %self.name, "a dedicated server does not become ready; it is started anew");
                    runs.process.kill();
                    return;
                }
                home = ready(&self.paths) => runs.ready = Some((Instant::now(), home)),
            }
        }
        let version = self.record.as_ref().and_then(|record| record.run.as_ref());
        let version = version.map(|run| run.build.version.clone()).unwrap_or_default();
        if let Some((_, home)) = &runs.ready {
            let home = home.clone();
            if let Some(record) = self.record.as_mut().filter(|record| !record.was_ready) {
                record.was_ready = true;
                if let Err(refused) = self.save() {
                    tracing::warn!(server = %self.name, %refused, "a dedicated server was not written down as ready");
                }
            }
            self.say(Standing::Running { home, version, held });
        }
        let Some(runs) = &mut self.runs else { return };
        tokio::select! {
            ended = runs.process.ended() => self.note_end(ended),
            _ = orders.changed() => {}
        }
    }

    /// The process is gone: how long to wait, and what to tell.
    fn note_end(&mut self, ended: Ended) {
        let ready_for = self.runs.take().and_then(|runs| Some(runs.ready?.0.elapsed()));
        self.failures = failures_after(self.failures, ready_for);
        self.ended = Some(Instant::now());
        if let Some(record) = &mut self.record {
            record.process = None;
        }
        if let Err(refused) = self.save() {
            tracing::warn!(server = %self.name, %refused, "the end of a dedicated server was not written down");
        }
        let mut message = "the server ended".to_owned();
        if let Some(status) = ended {
            message = format!("{message} ({status})");
        }
        if let Some(words) = launch::last_words(&self.paths) {
            message = format!("{message}: {words}");
        }
        tracing::warn!(server = %self.name, failures = self.failures, "{message}; it is started again");
        self.say(Standing::Pending(format!("{message}; it is started again")));
    }

    /// Ends the process in order, or else by force.
    async fn stop(&mut self) -> Result<(), Refused> {
        self.find()?;
        if let Some(runs) = &mut self.runs {
            runs.process.terminate();
            if tokio::time::timeout(STOP, runs.process.ended()).await.is_err() {
                tracing::warn!(server = %self.name, "a dedicated server does not end; it is killed");
                runs.process.kill();
                runs.process.ended().await;
            }
        }
        self.runs = None;
        self.ended = None;
        self.failures = 0;
        if let Some(record) = &mut self.record {
            record.process = None;
        }
        self.save()
    }

    async fn halt(&mut self) -> Result<(), Refused> {
        self.stop().await
    }

    /// Ends the server for good. Its data is kept, marked, or goes.
    async fn retire(&mut self, policy: DeletionPolicy) -> Result<(), Refused> {
        self.say(Standing::Pending("the server is being stopped".to_owned()));
        self.stop().await?;
        let failed = |error: std::io::Error| Refused::failed(format!("{}: {error}", self.paths.home.display()));
        match policy {
            DeletionPolicy::Retain => {
                let Some(record) = &self.record else { return Ok(()) };
                let kept = Kept {
                    name: record.wanted.name.clone(),
                    cluster_path: record.wanted.cluster_path.clone(),
                    plane_id: std::fs::read_to_string(self.paths.keeps()).ok(),
                    provider: record.provider.clone(),
                    version: record.run.as_ref().map(|run| run.build.version.clone()),
                    store: record.store.clone(),
                    retained_at: jiff::Timestamp::now().to_string(),
                };
                let text = serde_json::to_vec_pretty(&kept).unwrap_or_default();
                write_private(&self.paths.retained(), &text).map_err(failed)
            }
            DeletionPolicy::Destroy => {
                let store = self.record.as_ref().and_then(|record| record.store.clone());
                self.storage.destroy(store.as_deref()).await?;
                let home = self.paths.home.clone();
                let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(home)).await;
                match removed.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
                    _ => {
                        self.record = None;
                        Ok(())
                    }
                }
            }
        }
    }
}

/// Waits until a server that starts can be used.
async fn ready(paths: &Paths) -> Home {
    let mut pause = FIRST_LOOK;
    loop {
        if let Ok(home) = Box::pin(launch::home(paths)).await
            && let Ok(true) = tokio::time::timeout(LOOK, answers(&home)).await
        {
            return home;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_LOOK);
    }
}

async fn answers(home: &Home) -> bool {
    // A request to nobody would stand in the log as an error, and a server that starts is none.
    listens(&home.url).await && home.api.get(PROBE).await.is_ok()
}

async fn listens(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return true };
    let (Some(host), Some(port)) = (url.host(), url.port_u16()) else {
        return true;
    };
    let host = host.trim_matches(['[', ']']);
    tokio::net::TcpStream::connect((host, port)).await.is_ok()
}
