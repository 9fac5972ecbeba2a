//! Takes the plane of a control plane from one server to another, when its mode is not where it lives: from the shared server
//! to one of its own, and back (`docs/design/moving-planes.md` has the servers' half).
//!
//! [`Migrations::advance`] looks at both servers, decides ([`plan`]) and does ([`apply`]) until there is nothing to do or
//! something takes time, and says where the plane is. Nothing is remembered that matters: an operator that is killed
//! anywhere is followed by one that sees the same and goes on. Copying runs aside ([`courier`]).

mod apply;
mod courier;
pub mod plan;
pub mod report;
mod side;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mica_api::control_plane::{Migration, MigrationStep, Mode, reason};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::broadcast;

use crate::api::Refusal;
use crate::control_plane::Home;
use crate::dedicated::{self, Provider, Provisioned};
use crate::turn::Turn;
use apply::Done;
use courier::{Couriers, Way};
use plan::{Carried, Decision, Drain, Lives, Now, Seen, Side, Step, Wanted, other};
use report::{Facts, Report, Trouble, is_over};
use side::Half;

/// How long an old address passes requests on, unless its ControlPlane says otherwise.
pub const DRAIN: Duration = Duration::from_secs(60);
/// Steps taken in one go. What is left is gone on with at once.
const STEPS: usize = 16;
/// How soon to look again at what changes without a word: a server that does not answer, a Plane that goes.
const LOOK: Duration = Duration::from_millis(500);
/// How soon to look whether somebody has done what only they can.
const STUCK: Duration = Duration::from_secs(10);
/// How soon what failed is tried again while writes wait.
const SOON: Duration = Duration::from_secs(1);
/// Switches whose time is remembered until it is reported.
const SWITCHES: usize = 256;

/// Whose a Plane is.
pub enum Owner {
    /// The control plane's.
    Us,
    /// Somebody else's, and who that is.
    Other(String),
}

/// A control plane whose plane may have to move.
pub struct Case<'a> {
    pub name: &'a str,
    /// Another number when something else is asked for: what failed is tried at once then.
    pub asked: u64,
    /// The name of its plane, on every server.
    pub cluster_path: &'a str,
    pub wanted: Wanted,
    /// The kind of who runs a server for it, and that server.
    pub provider: &'a str,
    pub server: &'a dedicated::Wanted,
    /// Whose a Plane of its name is.
    pub owner: &'a (dyn Fn(&Value, Mode) -> Owner + Send + Sync),
    /// The Plane as it is to be made there.
    pub plane: &'a (dyn Fn(Mode) -> Value + Send + Sync),
    /// What was reported last.
    pub reported: Option<&'a Migration>,
    /// Whose addresses and credentials clients have.
    pub published: Option<Mode>,
    /// How long the old address passes requests on.
    pub drain: Duration,
    pub now: Timestamp,
}

/// Where a plane is.
#[derive(Clone)]
pub enum Residence {
    /// On this server; or it is new and may be made there.
    At {
        mode: Mode,
        home: Home,
        /// What the server runs, if it is the plane's own.
        version: Option<String>,
    },
    /// Nowhere, and it is not to be made.
    Nowhere,
    /// It must not be touched now.
    Held { reason: &'static str, message: String },
}

/// What a look at a control plane came to.
pub struct Standing {
    pub residence: Residence,
    /// The Plane where it is, as it was seen last; none if it is new.
    pub plane: Option<Value>,
    pub report: Report,
    pub rest: Rest,
}

/// What is left to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Nothing: the plane is where it is wanted, and nothing of it elsewhere.
    Settled,
    /// Something; to be looked at after this time, if nothing wakes before.
    After(Duration),
}

/// The plane of a control plane on both servers.
struct Halves {
    shared: Half,
    dedicated: Half,
    version: Option<String>,
}

impl Halves {
    fn at(&self, mode: Mode) -> &Half {
        match mode {
            Mode::Virtual => &self.shared,
            Mode::Dedicated => &self.dedicated,
        }
    }

    fn seen(&self) -> Seen {
        Seen {
            shared: self.shared.side.clone(),
            dedicated: self.dedicated.side.clone(),
        }
    }

    /// The way to a server from the other.
    fn way(&self, case: &Case<'_>, to: Mode) -> Option<Way> {
        Some(Way {
            from: self.at(other(to)).home.as_ref()?.api.clone(),
            to: self.at(to).home.as_ref()?.api.clone(),
            cluster_path: case.cluster_path.to_owned(),
        })
    }
}

/// Migrations of all control planes.
pub struct Migrations {
    shared: Home,
    providers: Vec<Arc<dyn Provider>>,
    couriers: Couriers,
    /// Who runs servers has none of it: what they give is used in this turn alone.
    turn: Turn,
    /// How long writes waited for switches that are not reported yet.
    waited: Mutex<Vec<(String, Duration)>>,
}

impl Migrations {
    pub fn new(shared: Home, providers: Vec<Arc<dyn Provider>>, turn: Turn) -> Self {
        Self {
            shared: shared.in_turn(&turn),
            providers,
            couriers: Couriers::new(),
            turn,
            waited: Mutex::default(),
        }
    }

    /// Names of control planes that can be gone on with.
    pub fn changes(&self) -> broadcast::Receiver<String> {
        self.couriers.changes()
    }

    /// Takes the next steps, as far as they can be taken now, and says where the plane is. What is about to begin is
    /// reported before it does: the next call begins it.
    pub async fn advance(&self, case: &Case<'_>) -> Result<Standing, Refusal> {
        self.couriers.heard(case.name, case.asked);
        let mut left = STEPS;
        loop {
            let halves = Box::pin(self.look(case)).await?;
            let decision = plan::plan(&halves.seen(), case.wanted, self.now(case));
            if !matches!(decision.step, Step::Carry(..)) {
                self.couriers.stop(case.name).await;
            }
            let report = self.report(case, &decision);
            // Of what is deleted nothing is reported any more.
            let is_news = case.wanted != Wanted::Gone && report.step() != case.reported.map(|reported| reported.step);
            let rest = match &decision.step {
                Step::Settled => {
                    self.couriers.forget(case.name);
                    Rest::Settled
                }
                Step::Wait(_) => Rest::After(self.couriers.retry(case.name).1.unwrap_or(LOOK)),
                Step::Stuck(..) => Rest::After(STUCK),
                Step::Drain => Rest::After(self.drain_left(case).max(LOOK)),
                step if left == 0 || (is_news && !is_urgent(step, &halves)) => Rest::After(Duration::ZERO),
                step => match Box::pin(self.apply(case, &halves, step)).await {
                    Ok(Done::Wait(time)) => Rest::After(time),
                    Ok(Done::Look) => {
                        left -= 1;
                        continue;
                    }
                    // Somebody wrote meanwhile, or it is gone: the next look knows more.
                    Err(refusal) if refusal.is_conflict() || refusal.is_not_found() => {
                        left -= 1;
                        continue;
                    }
                    // Whoever has it now sees the same.
                    Err(Refusal::NotOurTurn) => return Err(Refusal::NotOurTurn),
                    Err(refusal) => {
                        tracing::debug!(control_plane = case.name, ?step, %refusal, "a step of a migration failed");
                        self.failed(case.name, &refusal);
                        // One more look says how things are now.
                        left = 0;
                        continue;
                    }
                },
            };
            let rest = match (rest, self.couriers.retry(case.name).1) {
                (Rest::After(time), Some(pause)) if time.is_zero() => Rest::After(pause.min(SOON)),
                (rest, _) => rest,
            };
            let residence = residence(case, &halves, &decision, self.couriers.trouble(case.name));
            let plane = match &residence {
                Residence::At { mode, .. } => halves.at(*mode).plane.clone(),
                _ => None,
            };
            return Ok(Standing {
                residence,
                plane,
                report,
                rest,
            });
        }
    }

    fn now(&self, case: &Case<'_>) -> Now {
        Now {
            carried: self.couriers.carried(case.name),
            drain: match self.drain_left(case).is_zero() {
                true => Drain::Over,
                false => Drain::Pending,
            },
            retry: self.couriers.retry(case.name).0,
        }
    }

    /// How long the old address still has to pass requests on: it begins when clients are told of the new one.
    fn drain_left(&self, case: &Case<'_>) -> Duration {
        let Some(reported) = case.reported.filter(|reported| !is_over(reported.step)) else {
            return Duration::ZERO;
        };
        if reported.step < MigrationStep::Draining || case.published != Some(reported.to) {
            return case.drain.max(LOOK);
        }
        let since = reported.step_started_at.as_deref().and_then(|text| text.parse().ok());
        let since: Timestamp = match (reported.step, since) {
            (MigrationStep::Draining, Some(since)) => since,
            _ => return Duration::ZERO,
        };
        let passed = Duration::try_from(case.now.duration_since(since)).unwrap_or_default();
        case.drain.saturating_sub(passed)
    }

    fn report(&self, case: &Case<'_>, decision: &Decision) -> Report {
        let note = self.note(case.name, &decision.step);
        let trouble = self.couriers.trouble(case.name);
        report::report(&Facts {
            before: case.reported,
            decision,
            wanted: case.wanted,
            trouble: trouble.as_ref(),
            note: &note,
            now: &case.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        })
    }

    fn note(&self, name: &str, step: &Step) -> String {
        match step {
            Step::Carry(..) if self.couriers.carried(name) == Carried::Running => {
                format!("{} KiB were sent", self.couriers.sent(name) >> 10)
            }
            Step::Drain => match self.waited.lock().iter().rev().find(|(of, _)| of == name) {
                Some((_, waited)) => format!(
                    "the old address passes requests on; writes waited for {} ms",
                    waited.as_millis()
                ),
                None => String::new(),
            },
            _ => String::new(),
        }
    }

    fn switched(&self, name: &str, waited: Duration) {
        let mut all = self.waited.lock();
        all.retain(|(of, _)| of != name);
        if all.len() >= SWITCHES {
            all.remove(0);
        }
        all.push((name.to_owned(), waited));
    }

    async fn look(&self, case: &Case<'_>) -> Result<Halves, Refusal> {
        let mut shared = Half::look(case, &self.shared, Mode::Virtual).await?;
        let (mut dedicated, version) = self.look_at_its_own(case).await;
        side::compare_address(&mut shared, &dedicated, case.cluster_path);
        side::compare_address(&mut dedicated, &shared, case.cluster_path);
        Ok(Halves {
            shared,
            dedicated,
            version,
        })
    }

    /// The plane's own server, if there is one. Where the plane is to be there, it is made as it is wanted.
    async fn look_at_its_own(&self, case: &Case<'_>) -> (Half, Option<String>) {
        let silent = |why: String| (Half::without(Side::Silent(why)), None);
        for provider in &self.providers {
            let found = match provider.find(case.name).await {
                Ok(None) => continue,
                Ok(Some(found)) => found,
                Err(refused) => return silent(refused.to_string()),
            };
            let wanted = case.wanted == Wanted::At(Mode::Dedicated) && provider.kind() == case.provider;
            let wanted = wanted && self.turn.may_write();
            let stands = match wanted {
                true => provider.provision(case.server).await,
                false => Ok(found.clone()),
            };
            // One that cannot be as it is wanted goes on as it is.
            let stands = match stands {
                Err(dedicated::Refused::Unacceptable { .. }) => Ok(found),
                stands => stands,
            };
            return match stands {
                Err(refused) => silent(refused.to_string()),
                Ok(Provisioned::Pending { message }) => silent(message),
                Ok(Provisioned::Running { home, version }) => {
                    let home = home.in_turn(&self.turn);
                    match Half::look(case, &home, Mode::Dedicated).await {
                        Ok(half) => (half, Some(version)),
                        Err(refusal) => silent(format!("the server of its own does not answer: {refusal}")),
                    }
                }
            };
        }
        (Half::without(Side::Nowhere), None)
    }
}

/// Whether a step must not wait for anything: writes do.
fn is_urgent(step: &Step, halves: &Halves) -> bool {
    let fenced = [Mode::Virtual, Mode::Dedicated]
        .iter()
        .any(|mode| halves.at(*mode).side == Side::Moving);
    fenced || matches!(step, Step::Drop(_) | Step::Unfence(_))
}

fn residence(case: &Case<'_>, halves: &Halves, decision: &Decision, trouble: Option<Trouble>) -> Residence {
    let at = |mode: Mode| {
        let half = halves.at(mode);
        half.home.clone().map(|home| Residence::At {
            mode,
            home,
            version: halves.version.clone().filter(|_| mode == Mode::Dedicated),
        })
    };
    let under_way = case.reported.is_some_and(|reported| !is_over(reported.step));
    let there = match (&decision.lives, case.wanted) {
        (Lives::Nowhere, Wanted::Gone) => Some(Residence::Nowhere),
        (Lives::At(mode), _) => at(*mode),
        (Lives::Nowhere, Wanted::At(mode)) if decision.step == Step::Settled => at(mode),
        _ => None,
    };
    there.unwrap_or_else(|| {
        let (reason, message) = match &decision.step {
            Step::Stuck(reason, message) => (*reason, message.clone()),
            step if trouble.is_some() && !under_way && *step != Step::Settled => trouble
                .map(|trouble| (trouble.reason, trouble.message))
                .unwrap_or_default(),
            Step::Wait(message) if under_way => (reason::MIGRATING, message.clone()),
            Step::Wait(message) => (reason::PROVISIONING, message.clone()),
            _ => (reason::PROVISIONING, "a server is being made ready".to_owned()),
        };
        Residence::Held { reason, message }
    })
}

#[cfg(test)]
mod tests;
