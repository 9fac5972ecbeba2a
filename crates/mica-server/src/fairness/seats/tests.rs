//! The dispatcher in tables: floods, turns, wide requests, levels, changes.

use std::collections::BTreeMap;

use super::super::level::Level;
use super::*;

fn level(name: &str, shares: u32, lendable: u32, response: Response) -> Level {
    Level {
        name: name.into(),
        shares,
        lendable,
        borrowing: None,
        response,
    }
}

fn levels(all: Vec<Level>) -> Arc<Levels> {
    Arc::new(Levels::new(all))
}

fn one_level() -> Arc<Levels> {
    levels(vec![level("all", 10, 0, Response::queue(64, 6, 1000))])
}

fn plane(n: u8) -> PlaneId {
    PlaneId::from_random(u64::from(n))
}

/// A board with waiters that are known by number, and who sits.
struct Board {
    seats: Seats<u32>,
    sitting: BTreeMap<u32, Place>,
    tickets: BTreeMap<u32, Ticket>,
    next: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Came {
    Sits(u32),
    Waits(u32),
    Refused(Refusal),
}

impl Board {
    fn new(seats: u32) -> Self {
        Self {
            seats: Seats::new(seats),
            sitting: BTreeMap::new(),
            tickets: BTreeMap::new(),
            next: 0,
        }
    }

    fn come(&mut self, plane: PlaneId, levels: &Arc<Levels>, level: usize, flow: u64, width: u32) -> Came {
        self.next += 1;
        let who = self.next;
        let ask = Ask {
            plane,
            levels,
            level,
            flow,
            width,
        };
        match self.seats.enter(ask, || who) {
            Entry::Seated(place) => {
                self.sitting.insert(who, place);
                Came::Sits(who)
            }
            Entry::Waiting(ticket) => {
                self.tickets.insert(who, ticket);
                Came::Waits(who)
            }
            Entry::Refused(why) => Came::Refused(why),
        }
    }

    fn sit(&mut self, seated: Vec<(u32, Place)>) -> Vec<u32> {
        let who: Vec<u32> = seated.iter().map(|(who, _)| *who).collect();
        self.sitting.extend(seated);
        who
    }

    fn leave(&mut self, who: u32) -> Vec<u32> {
        let place = self.sitting.remove(&who).expect("sits");
        let seated = self.seats.leave(&place);
        self.check();
        self.sit(seated)
    }

    fn give_up(&mut self, who: u32) -> Vec<u32> {
        let ticket = self.tickets.remove(&who).expect("waits");
        let seated = self.seats.give_up(&ticket);
        self.check();
        self.sit(seated)
    }

    /// How many of a plane sit.
    fn of(&self, plane: PlaneId) -> u32 {
        self.seats.planes.get(&plane).map_or(0, |plane| plane.used)
    }

    /// The sums agree, and who waits is found.
    fn check(&self) {
        let planes = self.seats.planes.values();
        let (mut used, mut waiting) = (0, 0);
        for plane in planes {
            used += plane.used;
            waiting += plane.waiting;
            assert_eq!(plane.used, plane.states.iter().map(|state| state.used).sum::<u32>());
            assert_eq!(
                plane.waiting,
                plane.states.iter().map(|state| state.waiting).sum::<u32>()
            );
            for state in &plane.states {
                let queued: usize = state.queues.values().map(|queue| queue.waiters.len()).sum();
                assert_eq!(state.waiting as usize, queued);
            }
        }
        assert_eq!((used, waiting), (self.seats.used, self.seats.waiting));
        let listed: BTreeSet<(u32, u64, PlaneId)> = self
            .seats
            .planes
            .iter()
            .filter(|(_, plane)| plane.waiting > 0)
            .map(|(id, plane)| (plane.used, plane.served, *id))
            .collect();
        assert_eq!(listed, self.seats.next);
    }
}

#[test]
fn a_flood_that_never_ends_leaves_seats_for_who_comes_new() {
    let (mut board, levels) = (Board::new(100), one_level());
    for _ in 0..500 {
        board.come(plane(1), &levels, 0, 1, 1);
    }
    assert_eq!(board.of(plane(1)), 80, "four parts of five");
    for n in 2..=12 {
        let came = board.come(plane(n), &levels, 0, 1, 1);
        assert!(matches!(came, Came::Sits(_)), "plane {n} was shut out");
    }
    board.check();
}

#[test]
fn planes_that_all_want_everything_get_as_much_as_one_another() {
    let (mut board, levels) = (Board::new(120), one_level());
    for round in 0..200 {
        for n in 1..=5 {
            board.come(plane(n), &levels, 0, round, 1);
        }
    }
    // Whoever stands up comes again: a closed loop.
    for _ in 0..2000 {
        let oldest = *board.sitting.keys().next().expect("somebody sits");
        board.leave(oldest);
        if board.seats.waiting < 200 {
            break;
        }
    }
    let shares: Vec<u32> = (1..=5).map(|n| board.of(plane(n))).collect();
    assert!(shares.iter().all(|share| (21..=24).contains(share)), "{shares:?}");
}

#[test]
fn a_late_plane_gets_its_part_as_seats_become_free() {
    let (mut board, levels) = (Board::new(50), one_level());
    let flood: Vec<u32> = (0..300)
        .filter_map(|_| match board.come(plane(1), &levels, 0, 1, 1) {
            Came::Sits(who) => Some(who),
            _ => None,
        })
        .collect();
    let late: u32 = (0..100)
        .map(|_| u32::from(matches!(board.come(plane(2), &levels, 0, 1, 1), Came::Sits(_))))
        .sum();
    assert_eq!((flood.len(), late), (40, 8));
    for who in flood {
        board.leave(who);
    }
    let (one, two) = (board.of(plane(1)), board.of(plane(2)));
    assert!(one.abs_diff(two) <= 1 && one + two >= 43, "{one} and {two}");
}

#[test]
fn with_more_planes_than_seats_everybody_gets_a_turn() {
    let (mut board, levels) = (Board::new(4), one_level());
    let mut came = BTreeMap::new();
    for round in 0..2 {
        for n in 1..=20 {
            if let Came::Sits(who) | Came::Waits(who) = board.come(plane(n), &levels, 0, round, 1) {
                came.insert(who, n);
            }
        }
    }
    let mut served = BTreeMap::<u8, u32>::new();
    while let Some(who) = board.sitting.keys().next().copied() {
        *served.entry(came[&who]).or_default() += 1;
        board.leave(who);
    }
    assert_eq!(served.len(), 20);
    assert!(served.values().all(|turns| *turns == 2), "{served:?}");
    assert_eq!((board.seats.used, board.seats.waiting), (0, 0));
}

#[test]
fn a_flooding_flow_does_not_delay_another_of_its_level() {
    let (mut board, levels) = (
        Board::new(50),
        levels(vec![level("all", 10, 0, Response::queue(64, 6, 50))]),
    );
    for _ in 0..400 {
        board.come(plane(1), &levels, 0, 0x1234_5678_9abc, 1);
    }
    let Came::Waits(quiet) = board.come(plane(1), &levels, 0, 0xfeed_beef_0001, 1) else {
        panic!("all seats are taken");
    };
    let mut left = 0;
    loop {
        let oldest = *board.sitting.keys().next().unwrap();
        left += 1;
        if board.leave(oldest).contains(&quiet) {
            break;
        }
        assert!(left <= 1, "the quiet flow waits behind the flood");
    }
}

#[test]
fn levels_keep_what_is_reserved_and_lend_the_rest() {
    let (mut board, levels) = (
        Board::new(125),
        levels(vec![
            level("low", 50, 100, Response::queue(8, 2, 1000)),
            level("high", 50, 50, Response::Reject),
        ]),
    );
    for _ in 0..200 {
        board.come(plane(1), &levels, 0, 1, 1);
    }
    // 100 seats: 50 are high's, and it lends half of them.
    assert_eq!(board.of(plane(1)), 75);
    let sat = (0..60)
        .filter(|_| matches!(board.come(plane(1), &levels, 1, 1, 1), Came::Sits(_)))
        .count();
    assert_eq!(sat, 25);
    assert_eq!(board.come(plane(1), &levels, 1, 1, 1), Came::Refused(Refusal::NoSeat));
    board.check();
}

#[test]
fn a_level_borrows_no_more_than_it_may() {
    let mut low = level("low", 20, 0, Response::Reject);
    low.borrowing = Some(50);
    let (mut board, levels) = (
        Board::new(125),
        levels(vec![low, level("idle", 80, 100, Response::Reject)]),
    );
    let sat = (0..200)
        .filter(|_| matches!(board.come(plane(1), &levels, 0, 1, 1), Came::Sits(_)))
        .count();
    assert_eq!(sat, 30);
}

#[test]
fn what_is_exempt_is_bounded_by_its_plane() {
    let (mut board, levels) = (
        Board::new(100),
        levels(vec![
            level("exempt", 0, 0, Response::Exempt),
            level("low", 10, 0, Response::queue(8, 2, 50)),
        ]),
    );
    let sat = (0..300)
        .filter(|_| matches!(board.come(plane(1), &levels, 0, 1, 1), Came::Sits(_)))
        .count();
    assert_eq!(sat, 80);
    let Came::Waits(low) = board.come(plane(1), &levels, 1, 1, 1) else {
        panic!("the plane is full");
    };
    assert!(matches!(board.come(plane(2), &levels, 1, 1, 1), Came::Sits(_)));
    let oldest = *board.sitting.keys().next().unwrap();
    assert_ne!(board.leave(oldest), [low], "who is exempt goes first");
}

#[test]
fn queues_are_bounded() {
    let (mut board, levels) = (
        Board::new(5),
        levels(vec![level("low", 10, 0, Response::queue(1, 1, 3))]),
    );
    let came: Vec<Came> = (0..8).map(|_| board.come(plane(1), &levels, 0, 1, 1)).collect();
    assert!(
        matches!(came[3], Came::Sits(_)) && matches!(came[6], Came::Waits(_)),
        "{came:?}"
    );
    assert_eq!(came[7], Came::Refused(Refusal::QueueFull));
}

#[test]
fn one_plane_cannot_fill_all_queues() {
    let (mut board, levels) = (
        Board::new(10),
        levels(vec![level("low", 10, 0, Response::queue(1, 1, 100_000))]),
    );
    for _ in 0..1000 {
        board.come(plane(1), &levels, 0, 1, 1);
    }
    assert_eq!(board.seats.waiting, 160, "four parts of five of 200");
    for _ in 0..5 {
        board.come(plane(2), &levels, 0, 1, 1);
    }
    assert!(board.seats.waiting > 160);
}

#[test]
fn a_wide_request_is_not_passed_for_ever() {
    let (mut board, levels) = (Board::new(20), one_level());
    let narrow: Vec<Came> = (0..16).map(|_| board.come(plane(1), &levels, 0, 1, 1)).collect();
    assert!(narrow.iter().all(|came| matches!(came, Came::Sits(_))));
    let Came::Waits(wide) = board.come(plane(1), &levels, 0, 2, 8) else {
        panic!("no eight seats are free");
    };
    let behind: Vec<Came> = (0..20).map(|_| board.come(plane(1), &levels, 0, 3, 1)).collect();
    assert!(behind.iter().all(|came| matches!(came, Came::Waits(_))));
    let mut left = 0;
    while !board.sitting.contains_key(&wide) {
        let oldest = *board.sitting.keys().next().unwrap();
        board.leave(oldest);
        left += 1;
        assert!(left <= 20, "others go past it");
    }
    // Wider than a plane may ever have: it takes all that.
    let mut small = Board::new(5);
    assert!(matches!(small.come(plane(1), &levels, 0, 1, 10), Came::Sits(_)));
    assert_eq!(small.of(plane(1)), 4);
}

#[test]
fn who_gives_up_is_in_nobodys_way() {
    let (mut board, levels) = (Board::new(5), one_level());
    for _ in 0..4 {
        board.come(plane(1), &levels, 0, 1, 1);
    }
    let Came::Waits(first) = board.come(plane(1), &levels, 0, 1, 1) else {
        panic!("four of five are taken");
    };
    let Came::Waits(second) = board.come(plane(1), &levels, 0, 1, 1) else {
        panic!("four of five are taken");
    };
    assert_eq!(board.give_up(first), [0u32; 0]);
    assert_eq!(board.leave(1), [second]);
    assert_eq!(board.seats.waiting, 0);
}

#[test]
fn who_is_in_a_level_that_goes_keeps_its_place() {
    let (mut board, before, after) = (
        Board::new(5),
        levels(vec![
            level("old", 10, 0, Response::queue(4, 1, 50)),
            level("stays", 10, 0, Response::queue(4, 1, 50)),
        ]),
        levels(vec![level("stays", 10, 0, Response::queue(4, 1, 50))]),
    );
    for _ in 0..4 {
        board.come(plane(1), &before, 0, 1, 1);
    }
    board.come(plane(1), &after, 0, 1, 1);
    board.check();
    while let Some(who) = board.sitting.keys().next().copied() {
        board.leave(who);
    }
    assert_eq!((board.seats.used, board.seats.waiting), (0, 0));
    assert_eq!(board.seats.planes[&plane(1)].states.len(), 1);
}

#[test]
fn nothing_is_kept_for_many_idle_planes() {
    let (mut board, levels) = (Board::new(10), one_level());
    for n in 0..5 * REMEMBERED {
        let id = PlaneId::from_random(n as u64);
        let Came::Sits(who) = board.come(id, &levels, 0, 1, 1) else {
            panic!("all seats are free");
        };
        board.leave(who);
    }
    assert!(board.seats.planes.len() <= REMEMBERED);
}

/// Random floods, printed by their seed: sums agree at every step, nobody who could sit waits, and all are served in the end.
#[test]
fn whatever_comes_the_sums_agree_and_everybody_is_served() {
    for seed in 1..60u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let sets = [
            levels(vec![
                level("exempt", 0, 0, Response::Exempt),
                level("a", 30, 50, Response::queue(16, 3, 20)),
                level("b", 10, 0, Response::queue(8, 2, 20)),
                level("c", 5, 0, Response::Reject),
            ]),
            levels(vec![
                level("b", 10, 100, Response::queue(8, 2, 20)),
                level("a", 0, 0, Response::queue(16, 3, 20)),
            ]),
        ];
        let mut board = Board::new(u32::try_from(random(40)).unwrap() + 1);
        for _ in 0..600 {
            let set = &sets[usize::from(random(20) == 0)];
            let n = u8::try_from(random(6)).unwrap();
            match random(10) {
                0..=5 => {
                    let level = usize::try_from(random(set.all.len() as u64)).unwrap();
                    let width = u32::try_from(random(6)).unwrap();
                    board.come(plane(n), set, level, random(1 << 40), width);
                }
                6 => {
                    let waiting: Vec<u32> = board.tickets.keys().copied().collect();
                    if let Some(who) = waiting.get(usize::try_from(random(50)).unwrap()) {
                        // One that was seated since gives nothing up.
                        if !board.sitting.contains_key(who) {
                            board.give_up(*who);
                        }
                    }
                }
                _ => {
                    let sitting: Vec<u32> = board.sitting.keys().copied().collect();
                    if let Some(who) = sitting.get(usize::try_from(random(20)).unwrap()) {
                        board.tickets.remove(who);
                        board.leave(*who);
                    }
                }
            }
            board.check();
            assert!(board.seats.used <= board.seats.seats, "seed {seed}");
            assert!(
                board.seats.waiting == 0 || board.seats.used > 0,
                "seed {seed}: all wait for nobody"
            );
        }
        while let Some(who) = board.sitting.keys().next().copied() {
            board.leave(who);
        }
        assert_eq!((board.seats.used, board.seats.waiting), (0, 0), "seed {seed}");
    }
}
