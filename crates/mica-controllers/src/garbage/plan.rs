//! What is to be done about an object. A function of what was found, by upstream's rules.

use compact_str::CompactString;

use super::observe::{Found, State};
use crate::api::Propagation;
use crate::meta::{FOREGROUND, ORPHAN};

#[derive(PartialEq, Eq, Debug)]
pub enum Plan {
    Nothing,
    /// It goes, and its dependents as this says.
    Delete(Propagation),
    /// It waits for its dependents and is waited for in a circle: it stops to hold its owners, and goes.
    Unblock,
    /// It stays for the sake of its other owners, and does not name these any more.
    Disown(Vec<CompactString>),
    /// Nothing holds it any more but this finalizer.
    Release(&'static str),
    /// It waits for dependents; these are to be looked at.
    Await(Vec<usize>),
    /// These dependents are not to name it any more; then it is released.
    Orphan(Vec<usize>),
}

pub fn plan(found: &Found) -> Plan {
    let latest = &found.latest.meta;
    let every = || (0..found.dependents.len()).collect();
    if latest.orphans_dependents() {
        return match found.dependents.is_empty() {
            true => Plan::Release(ORPHAN),
            false => Plan::Orphan(every()),
        };
    }
    if latest.awaits_dependents() {
        let blocked = found.dependents.iter().any(|one| one.meta.blocks(&latest.uid));
        return match blocked {
            true => Plan::Await(every()),
            false => Plan::Release(FOREGROUND),
        };
    }
    if latest.is_deleting() || found.owners.is_empty() {
        return Plan::Nothing;
    }
    let has = |state: State| found.owners.iter().any(|(_, one)| *one == state);
    // Whom it names there is nobody's to guess: it stays.
    if has(State::Impossible) {
        return Plan::Nothing;
    }
    if has(State::Solid) {
        let gone = found.owners.iter().filter(|(_, state)| *state != State::Solid);
        let gone: Vec<CompactString> = gone.map(|(owner, _)| owner.uid.clone()).collect();
        return match gone.is_empty() {
            true => Plan::Nothing,
            false => Plan::Disown(gone),
        };
    }
    if has(State::AwaitsDependents) && !found.dependents.is_empty() {
        let circle = found.dependents.iter().any(|one| one.meta.awaits_dependents());
        return match circle {
            true => Plan::Unblock,
            false => Plan::Delete(Propagation::Foreground),
        };
    }
    let asked = [(ORPHAN, Propagation::Orphan), (FOREGROUND, Propagation::Foreground)];
    let asked = asked.into_iter().find(|(finalizer, _)| latest.has_finalizer(finalizer));
    Plan::Delete(asked.map_or(Propagation::Background, |(_, propagation)| propagation))
}

#[cfg(test)]
mod tests;
