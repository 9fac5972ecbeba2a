//! How control planes stand, in numbers: by phase, and their migrations. Counted from what was last seen of each, without a
//! list.
//!
//! No number is about one control plane: there are too many. A replica that stands by counts nothing, so that numbers of
//! several replicas can be added.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use compact_str::CompactString;
use mica_api::control_plane::{MigrationStep, Mode, Phase};
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use serde_json::Value;

use crate::control_plane::plan::mode_name;
use crate::migration::report::is_over;

const PHASES: [Phase; 4] = [Phase::Provisioning, Phase::Ready, Phase::Migrating, Phase::Failed];
/// The steps of a migration that is under way.
pub const STEPS: [MigrationStep; 6] = [
    MigrationStep::Provisioning,
    MigrationStep::Copying,
    MigrationStep::CatchingUp,
    MigrationStep::Switching,
    MigrationStep::Draining,
    MigrationStep::Decommissioning,
];
const MODES: [Mode; 2] = [Mode::Virtual, Mode::Dedicated];

/// The numbers. A clone has the same.
#[derive(Clone, Default)]
pub struct Census(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// About fifty bytes for each control plane.
    known: Mutex<HashMap<CompactString, Standing>>,
    migrations: Mutex<BTreeMap<(&'static str, Event), u64>>,
    counts: RwLock<Option<Box<Counts>>>,
}

/// Whether this replica is the one that counts.
type Counts = dyn Fn() -> bool + Send + Sync;

/// What is known of one.
#[derive(Clone, Copy, Default)]
struct Standing {
    phase: Option<Phase>,
    step: Option<MigrationStep>,
    to: Option<Mode>,
}

/// What is counted of migrations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Started,
    Completed,
    Cancelled,
}

/// Numbers of one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Family {
    /// Without `_total`.
    pub name: &'static str,
    pub help: &'static str,
    pub kind: Kind,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Gauge,
    Counter,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    pub labels: Vec<(&'static str, String)>,
    pub value: u64,
}

impl Census {
    /// Counts only while this says so.
    pub(crate) fn while_it_is(&self, ours: impl Fn() -> bool + Send + Sync + 'static) {
        *self.0.counts.write() = Some(Box::new(ours));
    }

    /// The status of a control plane is this.
    pub(crate) fn saw(&self, name: &str, status: &Value) {
        let seen = Standing::read(status);
        self.0.known.lock().insert(name.into(), seen);
    }

    /// The status of a control plane was written.
    pub(crate) fn wrote(&self, name: &str, before: &Value, after: &Value) {
        self.saw(name, after);
        let (was, is) = (Standing::read(before), Standing::read(after));
        let Some((to, event)) = is.to.zip(is.since(&was)) else {
            return;
        };
        *self.0.migrations.lock().entry((mode_name(to), event)).or_default() += 1;
    }

    /// A control plane is gone.
    pub(crate) fn forget(&self, name: &str) {
        self.0.known.lock().remove(name);
    }

    /// Everything, as it is now.
    pub fn families(&self) -> Vec<Family> {
        let counts = self.0.counts.read().as_ref().is_none_or(|counts| counts());
        let known: Vec<Standing> = match counts {
            true => self.0.known.lock().values().copied().collect(),
            false => Vec::new(),
        };
        let count = |is: &dyn Fn(&Standing) -> bool| known.iter().filter(|one| is(one)).count() as u64;
        let phases = PHASES.iter().map(|phase| Sample {
            labels: vec![("phase", format!("{phase:?}"))],
            value: count(&|one| one.phase.unwrap_or(Phase::Provisioning) == *phase),
        });
        let steps = STEPS.iter().map(|step| Sample {
            labels: vec![("step", format!("{step:?}"))],
            value: count(&|one| one.step == Some(*step)),
        });
        let migrations = self.0.migrations.lock();
        let ends = MODES.iter().flat_map(|mode| {
            let events = [Event::Started, Event::Completed, Event::Cancelled];
            events.map(|event| (mode_name(*mode), event))
        });
        let ends = ends.map(|(to, event)| Sample {
            labels: vec![("to", to.to_owned()), ("event", event.name().to_owned())],
            value: migrations.get(&(to, event)).copied().unwrap_or_default(),
        });
        vec![
            Family {
                name: "mica_control_planes",
                help: "ControlPlanes by their phase",
                kind: Kind::Gauge,
                samples: phases.collect(),
            },
            Family {
                name: "mica_control_plane_migrations_under_way",
                help: "ControlPlanes that move between servers, by the step of their migration",
                kind: Kind::Gauge,
                samples: steps.collect(),
            },
            Family {
                name: "mica_control_plane_migrations",
                help: "Migrations of ControlPlanes that were started, completed and cancelled, by the mode they lead to",
                kind: Kind::Counter,
                samples: ends.collect(),
            },
        ]
    }
}

impl Standing {
    fn read(status: &Value) -> Self {
        Self {
            phase: Phase::deserialize(&status["phase"]).ok(),
            step: MigrationStep::deserialize(&status["migration"]["step"]).ok(),
            to: Mode::deserialize(&status["migration"]["to"]).ok(),
        }
    }

    /// What became of its migration since then.
    fn since(&self, before: &Self) -> Option<Event> {
        if self.step == before.step {
            return None;
        }
        match self.step? {
            MigrationStep::Completed => Some(Event::Completed),
            MigrationStep::Cancelled => Some(Event::Cancelled),
            _ if before.step.is_some_and(|step| !is_over(step)) => None,
            _ => Some(Event::Started),
        }
    }
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Self::Started => "Started",
            Self::Completed => "Completed",
            Self::Cancelled => "Cancelled",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(census: &Census) -> Vec<String> {
        let families = census.families();
        let all = families.iter().flat_map(|family| {
            family.samples.iter().filter(|one| one.value > 0).map(|one| {
                let labels: Vec<&str> = one.labels.iter().map(|(_, value)| value.as_str()).collect();
                format!("{} {} {}", family.name, labels.join(" "), one.value)
            })
        });
        all.collect()
    }

    #[test]
    fn control_planes_are_counted_by_phase_and_migrations_by_what_became_of_them() {
        let census = Census::default();
        let ready = json!({"phase": "Ready"});
        let moving = |step: &str| json!({"phase": "Migrating", "migration": {"step": step, "to": "Dedicated"}});
        let moved = json!({"phase": "Ready", "migration": {"step": "Completed", "to": "Dedicated"}});
        census.saw("a", &ready);
        census.saw("b", &Value::Null);
        // One that moved before anybody counted.
        census.wrote("c", &moved, &moved);
        assert_eq!(
            shown(&census),
            ["mica_control_planes Provisioning 1", "mica_control_planes Ready 2"]
        );
        census.wrote("a", &ready, &moving("Provisioning"));
        census.wrote("a", &moving("Provisioning"), &moving("Copying"));
        census.wrote("b", &Value::Null, &json!({"phase": "Failed"}));
        assert_eq!(
            shown(&census),
            [
                "mica_control_planes Ready 1",
                "mica_control_planes Migrating 1",
                "mica_control_planes Failed 1",
                "mica_control_plane_migrations_under_way Copying 1",
                "mica_control_plane_migrations Dedicated Started 1"
            ]
        );
        census.wrote("a", &moving("Decommissioning"), &moved);
        census.forget("b");
        census.forget("c");
        let back = json!({"migration": {"step": "Cancelled", "to": "Virtual"}});
        census.wrote("d", &json!({"migration": {"step": "Copying", "to": "Virtual"}}), &back);
        census.forget("d");
        let all = [
            "mica_control_planes Ready 1",
            "mica_control_plane_migrations Virtual Cancelled 1",
            "mica_control_plane_migrations Dedicated Started 1",
            "mica_control_plane_migrations Dedicated Completed 1",
        ];
        assert_eq!(shown(&census), all);
        census.while_it_is(|| false);
        assert_eq!(shown(&census), all[1..], "others count what is");
    }
}
