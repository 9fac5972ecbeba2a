//! Every state that two servers can come to, whoever crashes and whatever is asked for meanwhile.

use std::collections::HashSet;

use super::*;

const NOW: Now = Now {
    carried: Carried::Idle,
    drain: Drain::Over,
    retry: Retry::Now,
};
const PASSES: Forward = Forward {
    requests: Requests::Pass,
    leads: Leads::There,
    holds: Holds::Data,
};
const MARK: Forward = Forward {
    requests: Requests::Refuse,
    leads: Leads::There,
    holds: Holds::Nothing,
};
const NAME: Forward = Forward {
    holds: Holds::Name,
    ..MARK
};
/// Writes of a model: more would only make more of the same states.
const WRITES: u8 = 3;

/// Two servers, a client that writes, and a user who changes their mind. Time and crashes are what [`Model::after`] leaves
/// open: everything that is not in here is forgotten between two steps.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Model {
    sides: [Side; 2],
    /// The last write that each side knows.
    data: [u8; 2],
    /// The last write that was acknowledged.
    written: u8,
    heard: bool,
    wanted: Wanted,
}

fn at(mode: Mode) -> usize {
    usize::from(mode == Mode::Dedicated)
}

impl Model {
    fn new() -> Self {
        Self {
            sides: [Side::Active, Side::Nowhere],
            data: [0, 0],
            written: 0,
            heard: true,
            wanted: Wanted::At(Mode::Virtual),
        }
    }

    /// One that was made on a server of its own, before names were held.
    fn born_there() -> Self {
        Self {
            sides: [Side::Absent, Side::Active],
            wanted: Wanted::At(Mode::Dedicated),
            ..Self::new()
        }
    }

    fn seen(&self) -> Seen {
        let dedicated = match &self.sides[1] {
            Side::Nowhere => Side::Nowhere,
            _ if !self.heard => Side::Silent("restarts".to_owned()),
            side => side.clone(),
        };
        Seen {
            shared: self.sides[0].clone(),
            dedicated,
        }
    }

    fn plan(&self, now: Now) -> Decision {
        plan(&self.seen(), self.wanted, now)
    }

    fn set(&self, mode: Mode, side: Side) -> Self {
        let mut next = self.clone();
        next.sides[at(mode)] = side;
        next
    }

    /// What was dropped or taken away must not have been the plane.
    fn without(&self, mode: Mode, left: Side) -> Self {
        let superseded = self.sides[at(other(mode))] == Side::Active;
        let itself = match self.sides[at(mode)] {
            Side::Active => true,
            Side::Moving => !superseded,
            _ => false,
        };
        assert!(!itself, "the plane itself would go: {self:?}");
        let mut next = self.set(mode, left);
        next.data[at(mode)] = 0;
        next
    }

    fn copied(&self, to: Mode) -> Self {
        let mut next = self.set(to, Side::Arriving(Some(1)));
        next.data[at(to)] = self.data[at(other(to))];
        next
    }

    /// Everything that a step may have done when whoever does it crashes, and in the end.
    fn after(&self, step: &Step) -> Vec<Self> {
        match *step {
            Step::Settled | Step::Wait(_) | Step::Stuck(..) | Step::Drain => Vec::new(),
            Step::Provision => vec![self.set(Mode::Dedicated, Side::Absent)],
            Step::Receive(to) => {
                let mut next = self.without(to, Side::Arriving(None));
                next.data[at(to)] = 0;
                vec![next]
            }
            Step::Carry(to, _) => vec![self.copied(to)],
            Step::Switch(to) => {
                let from = other(to);
                let fenced = self.set(from, Side::Moving);
                let last = fenced.copied(to);
                let open = last.set(to, Side::Active);
                let forward = open.set(from, Side::Moved(PASSES));
                vec![fenced, last, open, forward]
            }
            Step::Forward(mode) => vec![self.set(mode, Side::Moved(PASSES))],
            Step::Unfence(mode) => vec![self.set(mode, Side::Active)],
            Step::Redirect(mode) | Step::Refuse(mode) => {
                let refuses = Forward {
                    requests: Requests::Refuse,
                    ..PASSES
                };
                vec![self.set(mode, Side::Moved(refuses))]
            }
            Step::Drop(mode) | Step::Remove(mode) => vec![self.without(mode, Side::Absent)],
            Step::Mark => vec![self.set(Mode::Virtual, Side::Moved(MARK))],
            Step::Retire(_) => vec![self.without(Mode::Dedicated, Side::Nowhere)],
        }
    }

    /// What others do meanwhile.
    fn meanwhile(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for mode in [Mode::Virtual, Mode::Dedicated] {
            if self.sides[at(mode)] == Side::Active && self.written < WRITES {
                let mut next = self.clone();
                next.written += 1;
                next.data[at(mode)] = next.written;
                assert_eq!(
                    next.data[at(mode)],
                    self.data[at(mode)] + 1,
                    "a write is lost: {self:?}"
                );
                all.push(next);
            }
        }
        if matches!(self.sides[1], Side::Arriving(Some(_))) {
            all.push(self.set(Mode::Dedicated, Side::Arriving(None)));
        }
        let mut other = self.clone();
        other.heard = !self.heard;
        all.push(other);
        if self.wanted != Wanted::Gone {
            for wanted in [Wanted::At(Mode::Virtual), Wanted::At(Mode::Dedicated), Wanted::Gone] {
                all.push(Self { wanted, ..self.clone() });
            }
        }
        all
    }

    fn check(&self) {
        let open = |mode: &Mode| self.sides[at(*mode)] == Side::Active;
        let holds = |mode: &Mode| matches!(self.sides[at(*mode)], Side::Active | Side::Moving);
        let both = [Mode::Virtual, Mode::Dedicated];
        assert!(
            both.iter().filter(|mode| open(mode)).count() <= 1,
            "two are open: {self:?}"
        );
        let whole = both
            .iter()
            .any(|mode| holds(mode) && self.data[at(*mode)] == self.written);
        assert!(whole, "a write is lost: {self:?}");
    }

    /// Follows plans until there is nothing to do, without anybody in the way.
    fn settle(mut self) -> Self {
        self.heard = true;
        for _ in 0..40 {
            let caught = matches!(self.sides, [_, Side::Arriving(Some(_))] | [Side::Arriving(Some(_)), _]);
            let carried = if caught { Carried::Caught } else { Carried::Idle };
            let decision = self.plan(Now { carried, ..NOW });
            match self.after(&decision.step).pop() {
                Some(next) => self = next,
                None => {
                    assert_eq!(decision.step, Step::Settled, "{self:?}");
                    return self;
                }
            }
            self.check();
        }
        panic!("it does not end: {self:?}");
    }
}

fn reachable() -> Vec<Model> {
    let (mut all, mut known) = (Vec::new(), HashSet::new());
    let mut due = vec![Model::new(), Model::born_there()];
    while let Some(model) = due.pop() {
        if !known.insert(format!("{model:?}")) {
            continue;
        }
        all.push(model.clone());
        model.check();
        due.extend(model.meanwhile());
        for carried in [Carried::Idle, Carried::Caught] {
            for drain in [Drain::Pending, Drain::Over] {
                let now = Now { carried, drain, ..NOW };
                due.extend(model.after(&model.plan(now).step));
            }
        }
    }
    all
}

#[test]
fn no_crash_and_no_change_of_mind_loses_a_write_or_opens_two() {
    let known = reachable();
    assert!(known.len() > 500, "only {} states", known.len());
}

#[test]
fn from_every_state_the_plane_comes_to_where_it_is_wanted() {
    for model in reachable() {
        let end = model.clone().settle();
        match end.wanted {
            Wanted::At(mode) => {
                assert_eq!(end.sides[at(mode)], Side::Active, "from {model:?} to {end:?}");
                let left = &end.sides[at(other(mode))];
                let right = match mode {
                    Mode::Virtual => *left == Side::Nowhere,
                    Mode::Dedicated => *left == Side::Moved(MARK),
                };
                assert!(right, "from {model:?} to {end:?}");
            }
            // One plane is left, for whoever deletes it.
            Wanted::Gone => {
                let left = end.sides.iter().filter(|side| **side == Side::Active).count();
                let none = end
                    .sides
                    .iter()
                    .filter(|side| matches!(side, Side::Absent | Side::Nowhere))
                    .count();
                assert_eq!((left, none), (1, 1), "from {model:?} to {end:?}");
            }
        }
    }
}

fn check(shared: Side, dedicated: Side, wanted: Wanted, step: &Step) {
    let seen = Seen { shared, dedicated };
    assert_eq!(plan(&seen, wanted, NOW).step, *step, "{seen:?} {wanted:?}");
}

#[test]
fn each_point_of_a_migration_leads_on_is_given_up_or_ended() {
    use Side::{Absent, Active, Arriving, Moved, Moving, Nowhere};
    let (to, back) = (Wanted::At(Mode::Dedicated), Wanted::At(Mode::Virtual));
    let dedicated = Mode::Dedicated;
    for (shared, there, on, up) in [
        (Active, Nowhere, Step::Provision, Step::Settled),
        (Active, Absent, Step::Receive(dedicated), Step::Retire(Keep::Nothing)),
        (
            Active,
            Arriving(None),
            Step::Carry(dedicated, Load::Everything),
            Step::Drop(dedicated),
        ),
        (
            Active,
            Arriving(Some(9)),
            Step::Carry(dedicated, Load::Changes),
            Step::Drop(dedicated),
        ),
        (
            Moving,
            Arriving(Some(9)),
            Step::Switch(dedicated),
            Step::Drop(dedicated),
        ),
        (Moving, Arriving(None), Step::Drop(dedicated), Step::Drop(dedicated)),
        (
            Moving,
            Absent,
            Step::Unfence(Mode::Virtual),
            Step::Unfence(Mode::Virtual),
        ),
        (
            Moving,
            Active,
            Step::Forward(Mode::Virtual),
            Step::Forward(Mode::Virtual),
        ),
        // From here on the way back is a migration.
        (
            Moved(PASSES),
            Active,
            Step::Refuse(Mode::Virtual),
            Step::Receive(Mode::Virtual),
        ),
        (Moved(MARK), Active, Step::Settled, Step::Receive(Mode::Virtual)),
        (Absent, Active, Step::Mark, Step::Receive(Mode::Virtual)),
    ] {
        check(shared.clone(), there.clone(), to, &on);
        check(shared.clone(), there.clone(), back, &up);
        let ends = match (&shared, &there) {
            (Moved(_), Active) => Step::Remove(Mode::Virtual),
            (Absent, Active) => Step::Settled,
            _ => up,
        };
        check(shared, there, Wanted::Gone, &ends);
    }
}

#[test]
fn what_cannot_be_known_is_not_acted_on() {
    let silent = || Side::Silent("restarts".to_owned());
    for (shared, dedicated) in [
        (Side::Moving, silent()),
        (Side::Moved(PASSES), silent()),
        (Side::Moved(MARK), Side::Absent),
        (Side::Moved(PASSES), Side::Moved(PASSES)),
        (Side::Active, Side::Active),
        (Side::Moving, Side::Moving),
        (Side::Absent, silent()),
        (Side::Going, Side::Absent),
    ] {
        for wanted in [Wanted::At(Mode::Virtual), Wanted::At(Mode::Dedicated)] {
            let seen = Seen {
                shared: shared.clone(),
                dedicated: dedicated.clone(),
            };
            let decision = plan(&seen, wanted, NOW);
            assert_eq!(decision.lives, Lives::Unknown, "{seen:?}");
            assert!(
                matches!(decision.step, Step::Wait(_) | Step::Stuck(..)),
                "{seen:?}: {:?}",
                decision.step
            );
        }
    }
}

#[test]
fn a_plane_of_somebody_else_is_neither_filled_nor_destroyed() {
    let taken = || Side::Taken("of control plane \"b\"".to_owned());
    let seen = Seen {
        shared: Side::Active,
        dedicated: taken(),
    };
    let going = plan(&seen, Wanted::At(Mode::Dedicated), NOW);
    assert!(matches!(going.step, Step::Stuck("PlaneOccupied", _)), "{going:?}");
    check(
        Side::Active,
        taken(),
        Wanted::At(Mode::Virtual),
        &Step::Retire(Keep::Data),
    );
    check(taken(), Side::Active, Wanted::At(Mode::Dedicated), &Step::Settled);
    let seen = Seen {
        shared: taken(),
        dedicated: Side::Nowhere,
    };
    let new = plan(&seen, Wanted::At(Mode::Dedicated), NOW);
    assert!(matches!(new.step, Step::Stuck("ClusterPathTaken", _)), "{new:?}");
}

#[test]
fn a_plane_that_goes_with_its_control_plane_is_nobody_elses_concern() {
    for dedicated in [Side::Nowhere, Side::Absent, Side::Going] {
        check(Side::Going, dedicated, Wanted::Gone, &Step::Settled);
    }
    // A mark goes also where its server is gone.
    check(
        Side::Moved(MARK),
        Side::Nowhere,
        Wanted::Gone,
        &Step::Remove(Mode::Virtual),
    );
}

#[test]
fn a_plane_that_is_to_be_born_on_its_own_server_holds_its_name_first() {
    use Side::{Absent, Active, Moved, Nowhere};
    let taken = || Side::Taken("somebody's".to_owned());
    let (born, elsewhere) = (Wanted::At(Mode::Dedicated), Wanted::At(Mode::Virtual));
    let (remove, shared) = (Step::Remove(Mode::Virtual), Mode::Virtual);
    for (shared, own, on, not, gone) in [
        (Absent, Nowhere, Step::Provision, Step::Settled, Step::Settled),
        (
            Absent,
            Absent,
            Step::Mark,
            Step::Retire(Keep::Nothing),
            Step::Retire(Keep::Nothing),
        ),
        // One that was kept, and that it adopts.
        (
            Absent,
            taken(),
            Step::Mark,
            Step::Retire(Keep::Data),
            Step::Retire(Keep::Data),
        ),
        (Moved(NAME), Absent, Step::Settled, remove.clone(), remove.clone()),
        (Moved(NAME), taken(), Step::Settled, remove.clone(), remove.clone()),
        (Moved(NAME), Active, Step::Settled, Step::Receive(shared), remove),
    ] {
        check(shared.clone(), own.clone(), born, &on);
        check(shared.clone(), own.clone(), elsewhere, &not);
        check(shared, own, Wanted::Gone, &gone);
    }
}

#[test]
fn of_two_who_want_one_name_the_second_is_told_whose_it_is() {
    let holder = "ControlPlane \"first\"'s";
    for own in [Side::Nowhere, Side::Absent, Side::Taken("kept".to_owned())] {
        let seen = Seen {
            shared: Side::Taken(holder.to_owned()),
            dedicated: own,
        };
        let decision = plan(&seen, Wanted::At(Mode::Dedicated), NOW);
        let Step::Stuck("ClusterPathTaken", message) = &decision.step else {
            panic!("it is not refused: {decision:?}");
        };
        assert!(message.contains(holder), "{message}");
        assert_eq!(decision.lives, Lives::Nowhere);
    }
}

#[test]
fn a_server_that_another_operator_runs_is_not_made_again() {
    for mark in [MARK, NAME] {
        for wanted in [Wanted::At(Mode::Dedicated), Wanted::At(Mode::Virtual)] {
            let seen = Seen {
                shared: Side::Moved(mark),
                dedicated: Side::Nowhere,
            };
            let decision = plan(&seen, wanted, NOW);
            assert_eq!(decision.lives, Lives::Unknown);
            assert!(matches!(decision.step, Step::Stuck("PlaneUnclear", _)), "{decision:?}");
        }
    }
}

#[test]
fn what_failed_waits_and_what_is_suspended_stays() {
    let seen = Seen {
        shared: Side::Active,
        dedicated: Side::Absent,
    };
    let later = Now {
        retry: Retry::Later,
        ..NOW
    };
    let decision = plan(&seen, Wanted::At(Mode::Dedicated), later);
    assert!(matches!(decision.step, Step::Wait(_)));
    assert_eq!(decision.lives, Lives::At(Mode::Virtual));
    let seen = Seen {
        shared: Side::Stopped("Suspended".to_owned()),
        dedicated: Side::Absent,
    };
    let decision = plan(&seen, Wanted::At(Mode::Dedicated), NOW);
    assert!(matches!(decision.step, Step::Stuck("PlaneStopped", _)), "{decision:?}");
}

#[test]
fn the_old_address_passes_requests_on_until_the_drain_is_over_and_follows_the_new_one() {
    let seen = Seen {
        shared: Side::Moved(PASSES),
        dedicated: Side::Active,
    };
    let pending = Now {
        drain: Drain::Pending,
        ..NOW
    };
    assert_eq!(plan(&seen, Wanted::At(Mode::Dedicated), pending).step, Step::Drain);
    let elsewhere = Forward {
        leads: Leads::Elsewhere,
        ..MARK
    };
    check(
        Side::Moved(elsewhere),
        Side::Active,
        Wanted::At(Mode::Dedicated),
        &Step::Redirect(Mode::Virtual),
    );
}
