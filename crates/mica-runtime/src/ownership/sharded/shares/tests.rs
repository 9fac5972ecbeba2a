//! One replica's shares in tables, and three replicas on one table with everything late, lost and out of order.

use proptest::prelude::*;

use super::super::members::{Members, Said};
use super::*;

const LEASE: Duration = Duration::from_secs(15);
const RENEW: Duration = Duration::from_secs(10);
const HANDOVER: Duration = Duration::from_secs(5);

fn peer(name: &str) -> Peer {
    Peer {
        name: name.to_owned(),
        weight: 1.0,
    }
}

/// Plans, and writes at once.
fn turn(shares: &mut Shares, table: &mut Table, alive: &[Peer], now: Instant) {
    shares.follow(table);
    let changes = shares.plan(table, alive, now);
    let me = shares.me.clone();
    changes.write_into(&me, table);
    shares.wrote(&changes, now);
}

fn alone(now: Instant) -> (Shares, Table) {
    let (mut shares, mut table) = (Shares::new("a".to_owned(), HANDOVER), Table::new());
    shares.renewed(now + RENEW, now);
    turn(&mut shares, &mut table, &[peer("a")], now);
    (shares, table)
}

#[test]
fn a_slot_is_handed_over_when_its_work_is_through() {
    let now = Instant::now();
    let (mut a, mut table) = alone(now);
    assert_eq!(a.count(), (usize::from(SLOTS), 0));
    let mut b = Shares::new("b".to_owned(), HANDOVER);
    b.renewed(now + RENEW, now);
    let both = [peer("a"), peer("b")];
    let given = (0..SLOTS)
        .find(|slot| super::super::super::wanted_holder(*slot, &both).is_some_and(|peer| peer.name == "b"))
        .unwrap();
    let tenure = a.begin(given, now).unwrap();
    turn(&mut a, &mut table, &both, now);
    assert_eq!(
        (a.owns(given, now), a.holds(given, now)),
        (None, Some(1)),
        "nothing new begins"
    );
    turn(&mut a, &mut table, &both, now);
    turn(&mut b, &mut table, &both, now);
    assert!(b.begin(given, now).is_none(), "a is not through");
    assert!(b.count().0 > 400, "the idle ones are b's already");
    assert_eq!(a.count().1, 1);
    drop(tenure);
    turn(&mut a, &mut table, &both, now);
    assert_eq!(a.holds(given, now), None);
    turn(&mut b, &mut table, &both, now);
    assert_eq!(b.owns(given, now), Some(2));
}

#[test]
fn work_that_takes_too_long_is_told_to_stop_and_waited_for() {
    let now = Instant::now();
    let (mut a, mut table) = alone(now);
    let others = [
        peer("b"),
        Peer {
            weight: 0.0,
            ..peer("a")
        },
    ];
    let tenure = a.begin(3, now).unwrap();
    turn(&mut a, &mut table, &others, now);
    turn(&mut a, &mut table, &others, now);
    assert_eq!(a.count(), (0, 1));
    assert_eq!(a.due(), Some(now + HANDOVER));
    a.expire(now + HANDOVER);
    assert!(futures::FutureExt::now_or_never(tenure.lost()).is_some());
    turn(&mut a, &mut table, &others, now + HANDOVER);
    assert_eq!(table[&3].replica, "a", "it is not given away while it is worked on");
    drop(tenure);
    turn(&mut a, &mut table, &others, now + HANDOVER);
    assert_eq!(table[&3].replica, "");
    assert_eq!(a.count(), (0, 0));
}

#[test]
fn who_was_late_holds_nothing_and_claims_anew() {
    let start = Instant::now();
    let (mut a, mut table) = alone(start);
    let tenure = a.begin(3, start).unwrap();
    let late = start + RENEW;
    assert_eq!(a.owns(3, late), None, "before anybody noticed");
    a.renewed(late + RENEW, late);
    assert!(futures::FutureExt::now_or_never(tenure.lost()).is_some());
    assert_eq!(a.holds(4, late), None, "though the table says so");
    turn(&mut a, &mut table, &[peer("a")], late);
    assert_eq!(a.owns(4, late), Some(2));
    assert_eq!(a.owns(3, late), None, "its work of before has not stopped yet");
    drop(tenure);
    turn(&mut a, &mut table, &[peer("a")], late);
    assert_eq!(a.owns(3, late), Some(2));
}

#[test]
fn what_was_planned_before_a_lapse_is_void() {
    let start = Instant::now();
    let mut a = Shares::new("a".to_owned(), HANDOVER);
    a.renewed(start + RENEW, start);
    let changes = a.plan(&Table::new(), &[peer("a")], start);
    let late = start + LEASE;
    a.renewed(late + RENEW, late);
    a.wrote(&changes, late);
    assert_eq!(a.count(), (0, 0), "another may have claimed it since");
}

/// A server with the replicas' leases and the table.
#[derive(Default)]
struct Server {
    leases: [u64; 3],
    table: Table,
    version: u64,
}

struct Replica {
    shares: Shares,
    members: Members,
    renews: Option<Instant>,
    renewed: Option<Instant>,
    /// Sent, and not arrived.
    puts: Option<(u64, Changes)>,
    /// Sent and given up: it may arrive, and nobody hears of that.
    stray: Option<(u64, Changes)>,
    /// Arrived, and not answered.
    put: Option<Changes>,
    works: Vec<(Slot, Tenure)>,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Replica {
    fn new(name: &str) -> Self {
        Self {
            shares: Shares::new(name.to_owned(), HANDOVER),
            members: Members::new(LEASE),
            renews: None,
            renewed: None,
            puts: None,
            stray: None,
            put: None,
            works: Vec::new(),
        }
    }

    fn look(&mut self, server: &Server, now: Instant) {
        self.put = None;
        self.stray = self.puts.take();
        let leases = (0..3).filter(|i| server.leases[*i] > 0).map(|i| Said {
            replica: NAMES[i].to_owned(),
            version: server.leases[i].to_string(),
            weight: 1.0,
            lasts: LEASE,
        });
        let holders = server.table.values().map(|holder| holder.replica.as_str());
        self.members.saw(leases.collect(), holders, now);
        let me = self.shares.me.clone();
        let mut alive = self.members.alive(now);
        alive.retain(|peer| peer.name != me);
        alive.push(peer(&me));
        self.shares.follow(&server.table);
        self.puts = Some((server.version, self.shares.plan(&server.table, &alive, now)));
    }

    fn arrive(&mut self, server: &mut Server) {
        let me = &self.shares.me;
        let mut write = |version: u64, changes: &Changes| {
            let written = version == server.version && !changes.is_empty();
            if written {
                changes.write_into(me, &mut server.table);
                server.version += 1;
            }
            written
        };
        if let Some((version, changes)) = self.stray.take() {
            write(version, &changes);
        }
        if let Some((version, changes)) = self.puts.take()
            && write(version, &changes)
        {
            self.put = Some(changes);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(u64),
    SendRenewal(usize),
    RenewalArrives(usize),
    RenewalAnswered(usize),
    Look(usize),
    PutArrives(usize),
    PutAnswered(usize),
    Work(usize, Slot),
    Finish(usize),
    /// Everything at once, as it usually goes.
    Turn(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0usize..3;
    prop_oneof![
        2 => (0u64..4000).prop_map(Step::Pass),
        1 => who.clone().prop_map(Step::SendRenewal),
        1 => who.clone().prop_map(Step::RenewalArrives),
        1 => who.clone().prop_map(Step::RenewalAnswered),
        1 => who.clone().prop_map(Step::Look),
        1 => who.clone().prop_map(Step::PutArrives),
        1 => who.clone().prop_map(Step::PutAnswered),
        4 => (who.clone(), 0..SLOTS).prop_map(|(i, slot)| Step::Work(i, slot)),
        1 => who.clone().prop_map(Step::Finish),
        6 => who.prop_map(Step::Turn),
    ]
}

fn take(step: Step, replicas: &mut [Replica], server: &mut Server, now: &mut Instant) {
    match step {
        Step::Pass(millis) => {
            *now += Duration::from_millis(millis);
            for replica in replicas {
                replica.shares.expire(*now);
                // Who is told to stop stops.
                replica
                    .works
                    .retain(|(_, tenure)| futures::FutureExt::now_or_never(tenure.lost()).is_none());
            }
        }
        Step::SendRenewal(i) => replicas[i].renews = Some(*now),
        Step::RenewalArrives(i) => {
            if let Some(sent) = replicas[i].renews.take() {
                server.leases[i] += 1;
                replicas[i].renewed = Some(sent);
            }
        }
        Step::RenewalAnswered(i) => {
            if let Some(sent) = replicas[i].renewed.take() {
                replicas[i].shares.renewed(sent + RENEW, *now);
            }
        }
        Step::Look(i) => replicas[i].look(server, *now),
        Step::PutArrives(i) => replicas[i].arrive(server),
        Step::PutAnswered(i) => {
            if let Some(changes) = replicas[i].put.take() {
                replicas[i].shares.wrote(&changes, *now);
            }
        }
        Step::Work(i, slot) => {
            if let Some(tenure) = replicas[i].shares.begin(slot, *now) {
                replicas[i].works.push((slot, tenure));
            }
        }
        Step::Finish(i) => drop(replicas[i].works.pop()),
        Step::Turn(i) => {
            let all = [
                Step::SendRenewal(i),
                Step::RenewalArrives(i),
                Step::RenewalAnswered(i),
                Step::Look(i),
                Step::PutArrives(i),
                Step::PutAnswered(i),
            ];
            for step in all {
                take(step, replicas, server, now);
            }
        }
    }
}

proptest! {
    // A case takes long: a tenth of what is asked for.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(10)))]

    /// Whatever is late: no slot is owned or worked on by two replicas, and its epochs only grow.
    #[test]
    fn a_slot_has_one_owner_whatever_is_late(steps in prop::collection::vec(step(), 0..150)) {
        let mut now = Instant::now();
        let mut server = Server::default();
        let mut replicas: Vec<_> = NAMES.iter().map(|name| Replica::new(name)).collect();
        let mut last: HashMap<Slot, (usize, Epoch)> = HashMap::new();
        for step in steps {
            take(step, &mut replicas, &mut server, &mut now);
            let mut owners: HashMap<Slot, (usize, Epoch)> = HashMap::new();
            for (i, replica) in replicas.iter().enumerate() {
                let owned = replica.shares.held.keys().filter_map(|slot| Some((*slot, replica.shares.holds(*slot, now)?)));
                let worked = replica.works.iter().map(|(slot, tenure)| (*slot, tenure.epoch()));
                for (slot, epoch) in owned.chain(worked) {
                    if let Some((other, _)) = owners.insert(slot, (i, epoch)) {
                        prop_assert_eq!(other, i, "slot {} after {:?}", slot, step);
                    }
                }
            }
            for (slot, owner) in owners {
                let before = last.insert(slot, owner);
                prop_assert!(
                    before.is_none_or(|before| before.1 < owner.1 || before == owner),
                    "slot {slot}: {before:?} then {owner:?}"
                );
            }
        }
    }
}
