//! What is told of a migration: `status.migration`, the condition and events. It is a report, and no memory: only when the
//! migration began and since when its step lasts (which the drain counts from) are taken from the last one.

use mica_api::control_plane::{Migration, MigrationStep, Mode, condition, reason};

use super::plan::{Decision, Lives, Load, Step, Wanted};
use crate::condition::Change;

/// What was reported, what was decided, and what is known beside.
pub struct Facts<'a> {
    pub before: Option<&'a Migration>,
    pub decision: &'a Decision,
    pub wanted: Wanted,
    /// What went wrong the last time.
    pub trouble: Option<&'a Trouble>,
    /// What there is to say about the step.
    pub note: &'a str,
    pub now: &'a str,
}

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    pub reason: &'static str,
    pub message: String,
}

/// What a look at a control plane says of its migration.
#[derive(Clone, Default, Debug)]
pub struct Report {
    pub migration: Option<Migration>,
    pub condition: Option<Change>,
    /// Events: their reasons and messages.
    pub told: Vec<(String, String)>,
}

impl Report {
    /// How far the migration is.
    pub fn step(&self) -> Option<MigrationStep> {
        self.migration.as_ref().map(|migration| migration.step)
    }
}

pub fn is_over(step: MigrationStep) -> bool {
    matches!(step, MigrationStep::Completed | MigrationStep::Cancelled)
}

pub fn report(facts: &Facts<'_>) -> Report {
    let migration = migration(facts);
    let told = match &migration {
        Some(migration) if facts.before.map(|before| before.step) != Some(migration.step) => vec![told(migration)],
        _ => Vec::new(),
    };
    Report {
        condition: migration.as_ref().map(|migration| condition(facts, migration)),
        migration,
        told,
    }
}

fn migration(facts: &Facts<'_>) -> Option<Migration> {
    let under_way = facts.before.filter(|before| !is_over(before.step));
    let (from, to) = match (&facts.decision.lives, facts.wanted, under_way) {
        (Lives::At(from), Wanted::At(to), _) if *from != to => (*from, to),
        (_, _, Some(before)) => (before.from, before.to),
        (_, _, None) => return facts.before.cloned(),
    };
    let same = under_way.filter(|before| (before.from, before.to) == (from, to));
    let step = step(facts, same.map(|before| before.step), to);
    let since = same
        .filter(|before| before.step == step)
        .and_then(|before| before.step_started_at.clone());
    Some(Migration {
        step,
        from,
        to,
        started_at: same.map_or_else(|| facts.now.to_owned(), |before| before.started_at.clone()),
        step_started_at: Some(since.unwrap_or_else(|| facts.now.to_owned())),
        completed_at: is_over(step).then(|| facts.now.to_owned()),
        message: message(facts, step, from, to),
    })
}

/// How far it is. What is decided next says it; where nothing does, it is as far as it was.
fn step(facts: &Facts<'_>, before: Option<MigrationStep>, to: Mode) -> MigrationStep {
    let before = before.unwrap_or(MigrationStep::Provisioning);
    let arrived = facts.decision.lives == Lives::At(to);
    match &facts.decision.step {
        Step::Settled if arrived => MigrationStep::Completed,
        Step::Settled => MigrationStep::Cancelled,
        Step::Provision => MigrationStep::Provisioning,
        Step::Receive(_) => MigrationStep::Copying,
        Step::Carry(_, Load::Everything) => MigrationStep::Copying,
        Step::Carry(_, Load::Changes) => MigrationStep::CatchingUp,
        Step::Switch(_) | Step::Forward(_) => MigrationStep::Switching,
        Step::Redirect(_) | Step::Drain | Step::Refuse(_) if arrived => MigrationStep::Draining,
        Step::Remove(_) | Step::Mark | Step::Retire(_) if arrived => MigrationStep::Decommissioning,
        _ => before,
    }
}

fn message(facts: &Facts<'_>, step: MigrationStep, from: Mode, to: Mode) -> String {
    if let (Some(trouble), false) = (facts.trouble, is_over(step)) {
        return trouble.message.clone();
    }
    match (&facts.decision.step, step) {
        (_, MigrationStep::Completed) => format!("the plane is {}", word(to)),
        (_, MigrationStep::Cancelled) => format!("given up: the plane is {}", word(from)),
        (Step::Wait(why) | Step::Stuck(_, why), _) => why.clone(),
        (Step::Drop(_) | Step::Unfence(_) | Step::Retire(_), _) if facts.decision.lives != Lives::At(to) => {
            "it is being given up".to_owned()
        }
        (_, _) if !facts.note.is_empty() => facts.note.to_owned(),
        (_, MigrationStep::Provisioning) => "a server is being made ready".to_owned(),
        (_, MigrationStep::Copying) => "the plane is being copied while it is used".to_owned(),
        (_, MigrationStep::CatchingUp) => "what changed meanwhile is sent after".to_owned(),
        (_, MigrationStep::Switching) => "writes wait for the last changes".to_owned(),
        (_, MigrationStep::Draining) => "the old address passes requests on".to_owned(),
        (_, MigrationStep::Decommissioning) => "what the plane left behind is taken away".to_owned(),
    }
}

fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Virtual => "on the shared server",
        Mode::Dedicated => "on a server of its own",
    }
}

fn condition(facts: &Facts<'_>, migration: &Migration) -> Change {
    let (status, reason) = match (&facts.decision.step, migration.step) {
        (_, MigrationStep::Completed) => ("True", reason::RECONCILED),
        (_, MigrationStep::Cancelled) => ("False", reason::MIGRATION_CANCELLED),
        (Step::Stuck(reason, _), _) => ("False", *reason),
        _ => (
            "False",
            facts.trouble.map_or(reason::MIGRATING, |trouble| trouble.reason),
        ),
    };
    Change::new(condition::MIGRATED, status, reason, &migration.message)
}

fn told(migration: &Migration) -> (String, String) {
    let reason = match migration.step {
        MigrationStep::Provisioning => "MigrationStarted",
        MigrationStep::Copying => "MigrationCopying",
        MigrationStep::CatchingUp => "MigrationCatchingUp",
        MigrationStep::Switching => "MigrationSwitching",
        MigrationStep::Draining => "MigrationSwitched",
        MigrationStep::Decommissioning => "MigrationDrained",
        MigrationStep::Completed => "MigrationCompleted",
        MigrationStep::Cancelled => "MigrationCancelled",
    };
    (reason.to_owned(), migration.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told_of(before: Option<&Migration>, lives: Lives, step: Step, wanted: Wanted, now: &str) -> Report {
        report(&Facts {
            before,
            decision: &Decision { lives, step },
            wanted,
            trouble: None,
            note: "",
            now,
        })
    }

    #[test]
    fn a_plane_that_never_moved_has_no_report() {
        let here = Lives::At(Mode::Dedicated);
        let report = told_of(None, here, Step::Mark, Wanted::At(Mode::Dedicated), "t0");
        assert!(report.migration.is_none() && report.condition.is_none() && report.told.is_empty());
    }

    #[test]
    fn a_migration_is_told_step_by_step_and_the_drain_counts_from_its_step() {
        let (here, there) = (Lives::At(Mode::Virtual), Lives::At(Mode::Dedicated));
        let to = Wanted::At(Mode::Dedicated);
        let mut last: Option<Migration> = None;
        let mut told = Vec::new();
        for (at, (lives, step)) in [
            (here.clone(), Step::Provision),
            (here.clone(), Step::Wait("starts".to_owned())),
            (here.clone(), Step::Receive(Mode::Dedicated)),
            (here.clone(), Step::Carry(Mode::Dedicated, Load::Everything)),
            (here.clone(), Step::Carry(Mode::Dedicated, Load::Changes)),
            (Lives::Unknown, Step::Switch(Mode::Dedicated)),
            (there.clone(), Step::Drain),
            (there.clone(), Step::Drain),
            (there.clone(), Step::Remove(Mode::Virtual)),
            (there.clone(), Step::Settled),
            (there.clone(), Step::Settled),
        ]
        .into_iter()
        .enumerate()
        {
            let report = told_of(last.as_ref(), lives, step, to, &format!("t{at}"));
            told.extend(report.told.into_iter().map(|(reason, _)| reason));
            last = report.migration;
        }
        let last = last.unwrap();
        assert_eq!(last.step, MigrationStep::Completed);
        assert_eq!(
            (last.started_at.as_str(), last.completed_at.as_deref()),
            ("t0", Some("t9"))
        );
        assert_eq!(
            told,
            [
                "MigrationStarted",
                "MigrationCopying",
                "MigrationCatchingUp",
                "MigrationSwitching",
                "MigrationSwitched",
                "MigrationDrained",
                "MigrationCompleted"
            ]
        );
    }

    #[test]
    fn one_that_is_given_up_is_cancelled_and_the_way_back_is_another() {
        let here = Lives::At(Mode::Virtual);
        let first = told_of(None, here.clone(), Step::Provision, Wanted::At(Mode::Dedicated), "t0").migration;
        let back = Wanted::At(Mode::Virtual);
        let giving_up = told_of(first.as_ref(), here.clone(), Step::Drop(Mode::Dedicated), back, "t1").migration;
        assert_eq!(giving_up.as_ref().unwrap().message, "it is being given up");
        let end = told_of(giving_up.as_ref(), here, Step::Settled, back, "t2");
        assert_eq!(end.migration.as_ref().unwrap().step, MigrationStep::Cancelled);
        assert_eq!(end.condition.unwrap().reason, "Cancelled");
        let there = Lives::At(Mode::Dedicated);
        let again = told_of(end.migration.as_ref(), there, Step::Receive(Mode::Virtual), back, "t3").migration;
        let again = again.unwrap();
        assert_eq!(
            (again.from, again.to, again.started_at.as_str()),
            (Mode::Dedicated, Mode::Virtual, "t3")
        );
    }
}
