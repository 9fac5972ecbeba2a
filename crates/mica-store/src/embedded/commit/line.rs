//! Which of the transactions that wait form the next group.
//!
//! One plane alone fills groups: the sync is shared by as many as there are. While several planes write, a group has only a
//! few transactions of each. It is over soon, and who writes little is in the next one however many of another plane wait.
//! Planes that write far more than others also wait for their turn ([`Loud`]).

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use mica_api::PlaneId;
use tokio::sync::mpsc;

use super::loud::Loud;
use super::{CommitRequest, Job, Request};
use crate::store::{Txn, Write};

/// Transactions written together at most. More would only make watchers' batches larger: the sync is shared by then.
const GROUP: usize = 512;
/// Bytes of transactions written together at most, beyond the first.
const GROUP_BYTES: usize = 4 << 20;
/// Transactions of one plane in a group while others write, too: about as long as a sync takes.
const OF_ONE_PLANE: usize = 16;
/// The same of a loud plane, whose turn comes seldom.
const OF_LOUD_PLANE: usize = 64;
/// For how long planes that wrote one after the other are taken to write together.
const TOGETHER: Duration = Duration::from_secs(2);
/// Transactions that wait here at most; the others wait in the queue.
const TAKEN_IN: usize = 1024;

/// Transactions, and bytes of them, that wait while nobody is held back for longer: there must be room for everybody else.
const HELD: usize = TAKEN_IN / 4;
const HELD_BYTES: usize = 8 << 20;

/// Transactions in the order in which they came.
pub(super) struct Line {
    waiting: VecDeque<CommitRequest>,
    company: Company,
    loud: Loud,
}

/// Whose turn it may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// Loud planes wait for theirs.
    InTurn,
    /// Everybody's: something waits for all of them.
    Everybody,
}

/// Transactions that are written together.
pub(super) struct Group {
    pub(super) requests: Vec<CommitRequest>,
    /// Whether loud planes have a part in it.
    pub(super) loud: bool,
}

/// Whether one plane writes, or several do.
#[derive(Default)]
struct Company {
    last: Option<PlaneId>,
    until: Option<Instant>,
}

impl Company {
    fn note(&mut self, plane: Option<PlaneId>, now: Instant) {
        if plane.is_some() && plane != self.last {
            self.until = self.last.map(|_| now + TOGETHER);
            self.last = plane;
        }
    }

    fn is_there(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

impl Line {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            company: Company::default(),
            loud: Loud::default(),
        }
    }

    /// A transaction lines up; a job is given back.
    pub(super) fn take_in(&mut self, request: Request, now: Instant) -> Option<Job> {
        match request {
            Request::Job(job) => Some(job),
            Request::Commit(request) => {
                let plane = plane(&request.txn);
                self.company.note(plane, now);
                if let Some(plane) = plane {
                    self.loud.came(plane, now);
                }
                self.waiting.push_back(request);
                None
            }
        }
    }

    /// Takes in what waits, up to a job: that is done when all who came before it are.
    pub(super) fn fill(&mut self, requests: &mut mpsc::Receiver<Request>, now: Instant) -> Option<Job> {
        while self.waiting.len() < TAKEN_IN {
            let job = self.take_in(requests.try_recv().ok()?, now);
            if job.is_some() {
                return job;
            }
        }
        None
    }

    /// Until when those wait who have to; `None` if nobody does.
    pub(super) fn held_until(&self, now: Instant) -> Option<Instant> {
        // Whose turn it was is gone.
        self.waiting.front()?;
        Some(self.rests_until(now).unwrap_or(now))
    }

    /// Until when loud planes wait, if they do now.
    fn rests_until(&self, now: Instant) -> Option<Instant> {
        let until = self.loud.rests_until(now)?;
        let bytes: usize = self.waiting.iter().map(|request| request.bytes).sum();
        (self.waiting.len() < HELD && bytes < HELD_BYTES).then_some(until)
    }

    /// A group was written.
    pub(super) fn wrote(&mut self, loud: bool, took: Duration, now: Instant) {
        if loud {
            self.loud.wrote(took, now);
        }
    }

    /// Those whose turn it is; `None` if it is nobody's.
    pub(super) fn next_group(&mut self, turn: Turn, now: Instant) -> Option<Group> {
        let company = self.company.is_there(now);
        let rests = turn == Turn::InTurn && self.rests_until(now).is_some();
        let most = |loud: bool| match (company, loud) {
            (false, _) => GROUP,
            (true, false) => OF_ONE_PLANE,
            (true, true) => OF_LOUD_PLANE,
        };
        let mut of_plane: HashMap<Option<PlaneId>, usize> = HashMap::new();
        let (mut group, mut bytes) = (Vec::new(), 0);
        let mut passed_over = VecDeque::new();
        while let Some(request) = self.waiting.pop_front() {
            if group.len() >= GROUP || bytes >= GROUP_BYTES {
                self.waiting.push_front(request);
                break;
            }
            let plane = plane(&request.txn);
            let loud = plane.is_some_and(|plane| self.loud.is_loud(plane));
            let count = of_plane.entry(plane).or_default();
            if *count >= most(loud) || (loud && rests) {
                passed_over.push_back(request);
                continue;
            }
            *count += 1;
            bytes += request.bytes;
            group.push(request);
        }
        // Who was passed over came before all that are left.
        passed_over.append(&mut self.waiting);
        self.waiting = passed_over;
        let mut loud = false;
        for (plane, count) in of_plane {
            if let Some(plane) = plane.filter(|plane| count > 0 && self.loud.is_loud(*plane)) {
                loud = true;
                self.loud.took(plane, count);
            }
        }
        (!group.is_empty()).then_some(Group { requests: group, loud })
    }
}

/// The plane that a transaction changes: that of its first write.
fn plane(txn: &Txn) -> Option<PlaneId> {
    txn.writes.first().map(|write| match write {
        Write::Put { key, .. } | Write::Delete { key } => key.plane(),
        Write::DropPlane(plane) => *plane,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mica_api::GroupResource;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::key::PlaneKeys;

    fn request(plane: &str, name: &str) -> Request {
        let plane = PlaneId::parse(plane).unwrap();
        let key = PlaneKeys::new(plane).object(&GroupResource::new("", "configmaps"), Some("default"), name);
        let txn = Txn {
            compares: Vec::new(),
            writes: vec![Write::Delete { key }],
        };
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Request::Commit(CommitRequest::new(txn, 1, permit).0)
    }

    fn next(line: &mut Line, now: Instant) -> Vec<String> {
        line.next_group(Turn::InTurn, now)
            .map(|group| names(&group.requests))
            .unwrap_or_default()
    }

    fn names(group: &[CommitRequest]) -> Vec<String> {
        let name = |request: &CommitRequest| match &request.txn.writes[0] {
            Write::Delete { key } => key.as_str().rsplit('/').next().unwrap_or_default().to_owned(),
            _ => String::new(),
        };
        group.iter().map(name).collect()
    }

    const ONE: &str = "aaaaaaaaaaaa";
    const OTHER: &str = "bbbbbbbbbbbb";

    #[test]
    fn one_plane_alone_fills_groups() {
        let (mut line, now) = (Line::new(), Instant::now());
        for n in 0..GROUP + 1 {
            assert!(line.take_in(request(ONE, &n.to_string()), now).is_none());
        }
        assert_eq!(next(&mut line, now).len(), GROUP);
        assert_eq!(next(&mut line, now), [GROUP.to_string()]);
        assert!(next(&mut line, now).is_empty());
    }

    #[test]
    fn who_writes_little_is_in_the_next_group() {
        let (mut line, now) = (Line::new(), Instant::now());
        for n in 0..100 {
            line.take_in(request(ONE, &n.to_string()), now);
        }
        line.take_in(request(OTHER, "quiet"), now);
        let group = next(&mut line, now);
        assert_eq!(group.len(), OF_ONE_PLANE + 1);
        assert_eq!(group.last().map(String::as_str), Some("quiet"));
        // Everybody of a plane goes in the order in which they came.
        let mut rest = Vec::new();
        while let group = next(&mut line, now)
            && !group.is_empty()
        {
            assert!(group.len() <= OF_ONE_PLANE);
            rest.extend(group);
        }
        let expected: Vec<String> = (OF_ONE_PLANE..100).map(|n| n.to_string()).collect();
        assert_eq!(rest, expected);
    }

    #[test]
    fn groups_are_short_as_long_as_planes_wrote_together_lately() {
        let (mut line, now) = (Line::new(), Instant::now());
        line.take_in(request(OTHER, "quiet"), now);
        next(&mut line, now);
        for n in 0..100 {
            line.take_in(request(ONE, &n.to_string()), now);
        }
        assert_eq!(next(&mut line, now).len(), OF_ONE_PLANE);
        assert_eq!(next(&mut line, now + TOGETHER).len(), 100 - OF_ONE_PLANE);
    }

    #[test]
    fn a_job_waits_for_those_before_it() {
        let (mut line, now) = (Line::new(), Instant::now());
        let (sender, mut receiver) = mpsc::channel(8);
        for request in [request(ONE, "a"), Request::Job(Job::Close), request(ONE, "b")] {
            assert!(sender.try_send(request).is_ok());
        }
        assert!(matches!(line.fill(&mut receiver, now), Some(Job::Close)));
        assert_eq!(next(&mut line, now), ["a"]);
        assert!(line.fill(&mut receiver, now).is_none());
        assert_eq!(next(&mut line, now), ["b"]);
    }

    #[test]
    fn a_loud_plane_waits_for_its_turn_and_then_all_of_it_goes() {
        let (mut line, now) = (Line::new(), Instant::now());
        let loudly = |line: &mut Line, count| {
            for n in 0..count {
                line.take_in(request(ONE, &n.to_string()), now);
            }
        };
        loudly(&mut line, GROUP);
        while line.next_group(Turn::Everybody, now).is_some() {}
        line.take_in(request(OTHER, "quiet"), now);
        loudly(&mut line, 3 * OF_LOUD_PLANE);
        let group = line.next_group(Turn::InTurn, now).unwrap();
        assert!(group.loud);
        assert_eq!(group.requests.len(), OF_LOUD_PLANE + 1);
        line.wrote(group.loud, Duration::from_millis(1), now);
        let until = line.held_until(now).unwrap();
        assert!(until > now);
        assert_eq!(next(&mut line, now), Vec::<String>::new());
        line.take_in(request(OTHER, "again"), now);
        assert_eq!(next(&mut line, now), ["again"], "who writes little waits for nobody");
        // Whoever waits for all of them waits no longer than they take.
        let all = line.next_group(Turn::Everybody, now).unwrap();
        assert_eq!(all.requests.len(), OF_LOUD_PLANE);
        assert_eq!(next(&mut line, until).len(), OF_LOUD_PLANE);
        loudly(&mut line, HELD);
        assert_eq!(next(&mut line, now).len(), OF_LOUD_PLANE, "so many would be in the way");
    }
}
