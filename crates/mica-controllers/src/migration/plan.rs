//! The next step of a migration, from what both servers say of the plane. Nothing else decides it: whoever takes over after
//! a crash, at whatever point, sees the same and goes on.
//!
//! Three rules keep the data whole. A plane is opened only while its old server has it fenced. What was fenced is served
//! again only when the copy is known not to be open, and after it is gone. And where a server is not heard, nothing that
//! depends on what it would say is done.

use mica_api::control_plane::Mode;

/// What a server says of the plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Side {
    /// There is no server, and none was asked for.
    Nowhere,
    /// The server is not there yet, or does not answer; and why.
    Silent(String),
    Absent,
    /// A plane of that name that is somebody else's.
    Taken(String),
    /// It is being deleted.
    Going,
    Active,
    /// It is there and takes no writes, because somebody said so: `Suspended`, `ReadOnly`.
    Stopped(String),
    /// How far it has come, if it is whole.
    Arriving(Option<u64>),
    Moving,
    Moved(Forward),
}

/// What a plane that has moved does with requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forward {
    pub requests: Requests,
    pub leads: Leads,
    pub holds: Holds,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requests {
    Pass,
    Refuse,
}

/// Whether the address that it names is the one where the plane is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leads {
    There,
    Elsewhere,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// What the plane was when it moved.
    Data,
    Nothing,
    /// Nothing, for a plane that may not have been made yet: the name is held first.
    Name,
}

/// Both servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub shared: Side,
    pub dedicated: Side,
}

impl Seen {
    pub fn side(&self, mode: Mode) -> &Side {
        match mode {
            Mode::Virtual => &self.shared,
            Mode::Dedicated => &self.dedicated,
        }
    }
}

/// Where the plane is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    At(Mode),
    /// Its ControlPlane is deleted: what a migration began is to be ended first.
    Gone,
}

/// What no server knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    pub carried: Carried,
    pub drain: Drain,
    pub retry: Retry,
}

/// What the courier does, who copies and sends changes after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carried {
    Idle,
    Running,
    /// It has just brought everything.
    Caught,
}

/// Whether the old address still has to pass requests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    Pending,
    Over,
}

/// Whether what failed may be tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    Now,
    Later,
}

/// Where the plane is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lives {
    At(Mode),
    /// It has never been.
    Nowhere,
    /// It cannot be known now, or must not be touched.
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// It is where it is to be, or can be made there.
    Settled,
    /// Nothing can be done now; something will change.
    Wait(String),
    /// Somebody has to do something: the reason, and what.
    Stuck(&'static str, String),
    /// A server of its own is to be asked for.
    Provision,
    /// The target gets a plane that arrives.
    Receive(Mode),
    /// The courier copies to the target, or sends what changed.
    Carry(Mode, Load),
    /// Fence, last changes, comparison, opening of the target, and the switch.
    Switch(Mode),
    /// A fenced plane whose other half is open says where that is.
    Forward(Mode),
    /// The copy goes.
    Drop(Mode),
    /// The plane takes writes again.
    Unfence(Mode),
    /// The plane's address changed: its old one has to lead there.
    Redirect(Mode),
    /// Requests to the old address are passed on for a while.
    Drain,
    /// They are told where it is from now on.
    Refuse(Mode),
    /// What the plane left behind goes.
    Remove(Mode),
    /// The shared server is told where the plane is, or is to be, and holds its name.
    Mark,
    /// The server of its own is not needed; what happens to its data.
    Retire(Keep),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    Everything,
    Changes,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// All that is there is a copy, or has moved.
    Nothing,
    /// It may be somebody else's, or cannot be looked at.
    Data,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    pub lives: Lives,
    pub step: Step,
}

pub fn other(mode: Mode) -> Mode {
    match mode {
        Mode::Virtual => Mode::Dedicated,
        Mode::Dedicated => Mode::Virtual,
    }
}

pub fn plan(seen: &Seen, wanted: Wanted, now: Now) -> Decision {
    let (lives, step) = match home(seen) {
        // Nobody has to be asked about what goes with whatever is there.
        _ if wanted == Wanted::Gone && is_going(seen) => (Lives::Nowhere, Step::Settled),
        Home::Ask if wanted == Wanted::Gone && seen.shared != Side::Moving => {
            let why = "the plane has moved to a server that is not there".to_owned();
            (Lives::Unknown, unclear(seen, wanted, why))
        }
        Home::Ask => (Lives::Unknown, Step::Provision),
        Home::Unheard(why) => (Lives::Unknown, Step::Wait(why)),
        Home::Unclear(why) => (Lives::Unknown, unclear(seen, wanted, why)),
        Home::Nowhere => (Lives::Nowhere, nowhere(seen, wanted)),
        Home::At(mode) => {
            let step = match wanted {
                Wanted::At(to) if to != mode => go(seen, mode, now),
                _ => stay(seen, mode, wanted, now),
            };
            match seen.side(mode) {
                // Nothing can be written there.
                Side::Moving => (Lives::Unknown, step),
                _ => (Lives::At(mode), step),
            }
        }
    };
    let step = match now.retry {
        Retry::Later if may_wait(seen, &step) => Step::Wait("it is tried again in a while".to_owned()),
        _ => step,
    };
    Decision { lives, step }
}

/// Whether the plane is on its way out, and nothing else of it is anywhere.
fn is_going(seen: &Seen) -> bool {
    let nothing = |side: &Side| matches!(side, Side::Nowhere | Side::Absent | Side::Taken(_));
    match (&seen.shared, &seen.dedicated) {
        (Side::Going, other) | (other, Side::Going) => nothing(other) || *other == Side::Going,
        _ => false,
    }
}

/// Whether nobody is kept waiting if a step that failed is tried later.
fn may_wait(seen: &Seen, step: &Step) -> bool {
    let fenced = seen.shared == Side::Moving || seen.dedicated == Side::Moving;
    let begins = matches!(
        step,
        Step::Provision | Step::Receive(_) | Step::Carry(..) | Step::Switch(_) | Step::Mark | Step::Retire(_)
    );
    begins && !fenced
}

enum Home {
    At(Mode),
    Nowhere,
    /// The provider knows, and was not asked.
    Ask,
    Unheard(String),
    Unclear(String),
}

/// Where the plane is, fenced or not.
fn home(seen: &Seen) -> Home {
    use Side::{Absent, Active, Going, Moved, Moving, Nowhere, Silent, Stopped};
    match (&seen.shared, &seen.dedicated) {
        (Active | Stopped(_), Active | Stopped(_)) | (Moving, Moving) => {
            Home::Unclear("both servers say that the plane is theirs: delete the Plane that is not".to_owned())
        }
        (Moving, Active | Stopped(_)) => Home::At(Mode::Dedicated),
        (Active | Stopped(_), Moving) => Home::At(Mode::Virtual),
        (Silent(why), _) => Home::Unheard(why.clone()),
        (Moved(forward), Nowhere) if forward.holds != Holds::Data => Home::Unclear(
            "the plane is on a server that is not run here: that is for the operator that has the server's directory"
                .to_owned(),
        ),
        // Whether it has been opened is known there alone.
        (Moving | Moved(_), Nowhere) => Home::Ask,
        (Moving, Silent(why)) => {
            Home::Unheard(format!("writes wait for the server that was about to take over: {why}"))
        }
        (Active | Stopped(_) | Moving, _) => Home::At(Mode::Virtual),
        (_, Active | Stopped(_) | Moving) => Home::At(Mode::Dedicated),
        (_, Silent(why)) => Home::Unheard(why.clone()),
        (Going, _) | (_, Going) => Home::Unheard("a Plane is being deleted".to_owned()),
        (Moved(forward), Absent | Side::Taken(_)) if forward.holds == Holds::Name => Home::Nowhere,
        (Moved(_), Absent | Side::Taken(_)) | (Absent | Side::Taken(_), Moved(_)) => {
            Home::Unclear("the plane has moved to a server that has nothing of it".to_owned())
        }
        (Moved(_), _) | (_, Moved(_)) => Home::Unclear("each server says that the plane is on the other".to_owned()),
        _ => Home::Nowhere,
    }
}

/// Only what holds nothing can go when nobody knows where the plane is.
fn unclear(seen: &Seen, wanted: Wanted, why: String) -> Step {
    let mark = matches!(&seen.shared, Side::Moved(forward) if forward.holds != Holds::Data);
    match (wanted, &seen.dedicated) {
        (Wanted::Gone, Side::Absent | Side::Nowhere) if mark => Step::Remove(Mode::Virtual),
        _ => Step::Stuck(mica_api::control_plane::reason::PLANE_UNCLEAR, why),
    }
}

fn nowhere(seen: &Seen, wanted: Wanted) -> Step {
    for mode in [Mode::Virtual, Mode::Dedicated] {
        // What it was a copy of is gone.
        if matches!(seen.side(mode), Side::Arriving(_)) {
            return Step::Drop(mode);
        }
    }
    match (wanted, &seen.shared, &seen.dedicated) {
        (Wanted::At(Mode::Dedicated), Side::Taken(holder), _) => Step::Stuck(
            mica_api::control_plane::reason::CLUSTER_PATH_TAKEN,
            format!(
                "the shared server has a plane of this clusterPath, which is {holder}: make this one anew with another \
                 spec.virtual.clusterPath"
            ),
        ),
        (Wanted::At(Mode::Dedicated), _, Side::Nowhere) => Step::Provision,
        // Its name is held on the shared server before there is a plane: of two who want it one is refused.
        (Wanted::At(Mode::Dedicated), Side::Absent, _) => Step::Mark,
        (Wanted::At(Mode::Dedicated), ..) => Step::Settled,
        (_, Side::Moved(_), _) => Step::Remove(Mode::Virtual),
        (_, _, Side::Nowhere) => Step::Settled,
        (_, _, Side::Taken(_)) => Step::Retire(Keep::Data),
        _ => Step::Retire(Keep::Nothing),
    }
}

/// The plane is where it is to be: what a migration left, or began, is cleared away.
fn stay(seen: &Seen, here: Mode, wanted: Wanted, now: Now) -> Step {
    let away = other(here);
    match (seen.side(here), seen.side(away)) {
        (_, Side::Arriving(_)) => Step::Drop(away),
        (_, Side::Going) => Step::Wait("what is left of the plane is being deleted".to_owned()),
        (Side::Moving, Side::Silent(why)) => Step::Wait(why.clone()),
        (Side::Moving, _) => Step::Unfence(here),
        (_, Side::Moving) => Step::Forward(away),
        (_, Side::Moved(forward)) => left(*forward, away, wanted, now),
        (_, Side::Absent) if away == Mode::Virtual && wanted != Wanted::Gone => Step::Mark,
        (_, Side::Absent | Side::Taken(_)) if away == Mode::Virtual => Step::Settled,
        (_, Side::Absent) => Step::Retire(Keep::Nothing),
        (_, Side::Taken(_)) => Step::Retire(Keep::Data),
        (_, Side::Silent(why)) => match now.drain {
            Drain::Pending => Step::Wait(why.clone()),
            Drain::Over => Step::Retire(Keep::Data),
        },
        (_, Side::Nowhere | Side::Active | Side::Stopped(_)) => Step::Settled,
    }
}

/// What becomes of the plane's old place.
fn left(forward: Forward, away: Mode, wanted: Wanted, now: Now) -> Step {
    let clear = match away {
        Mode::Virtual => Step::Remove(away),
        Mode::Dedicated => Step::Retire(Keep::Nothing),
    };
    match forward {
        _ if wanted == Wanted::Gone => clear,
        Forward {
            leads: Leads::Elsewhere,
            ..
        } => Step::Redirect(away),
        Forward {
            requests: Requests::Pass,
            ..
        } => match now.drain {
            Drain::Pending => Step::Drain,
            Drain::Over => Step::Refuse(away),
        },
        Forward {
            holds: Holds::Nothing | Holds::Name,
            ..
        } if away == Mode::Virtual => Step::Settled,
        _ => clear,
    }
}

/// The plane is to go elsewhere.
fn go(seen: &Seen, from: Mode, now: Now) -> Step {
    use mica_api::control_plane::reason::{PLANE_OCCUPIED, PLANE_STOPPED};
    let to = other(from);
    match (seen.side(from), seen.side(to)) {
        (_, Side::Going) => Step::Wait("what is left of the plane is being deleted".to_owned()),
        (Side::Moving, Side::Arriving(Some(_))) => Step::Switch(to),
        (Side::Moving, Side::Arriving(None)) => Step::Drop(to),
        (Side::Moving, Side::Silent(why)) => Step::Wait(why.clone()),
        (Side::Moving, _) => Step::Unfence(from),
        (_, Side::Moving) => Step::Forward(to),
        (Side::Stopped(state), _) => Step::Stuck(
            PLANE_STOPPED,
            format!("the plane is {state}: it moves when it is Active"),
        ),
        (_, Side::Nowhere) => Step::Provision,
        (_, Side::Silent(why)) => Step::Wait(why.clone()),
        (_, Side::Taken(holder)) => Step::Stuck(
            PLANE_OCCUPIED,
            format!("the server that it is to go to has another plane of its name, {holder}"),
        ),
        (_, Side::Arriving(Some(_))) if now.carried == Carried::Caught => Step::Switch(to),
        (_, Side::Arriving(Some(_))) => Step::Carry(to, Load::Changes),
        (_, Side::Arriving(None)) => Step::Carry(to, Load::Everything),
        (_, _) => Step::Receive(to),
    }
}

#[cfg(test)]
mod tests;
