//! Which of the transactions that wait form the next group.
//!
//! One plane alone fills groups: the sync is shared by as many as there are. While several planes write, a group has only a
//! few transactions of each. It is over soon, and who writes little is in the next one however many of another plane wait.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use mica_api::PlaneId;
use tokio::sync::mpsc;

use super::{CommitRequest, Job, Request};
use crate::store::{Txn, Write};

/// Transactions written together at most. More would only make watchers' batches larger: the sync is shared by then.
const GROUP: usize = 512;
/// Bytes of transactions written together at most, beyond the first.
const GROUP_BYTES: usize = 4 << 20;
/// Transactions of one plane in a group while others write, too: about as long as a sync takes.
const OF_ONE_PLANE: usize = 16;
/// For how long planes that wrote one after the other are taken to write together.
const TOGETHER: Duration = Duration::from_secs(2);
/// Transactions that wait here at most; the others wait in the queue.
const TAKEN_IN: usize = 1024;

/// Transactions in the order in which they came.
pub(super) struct Line {
    waiting: VecDeque<CommitRequest>,
    company: Company,
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
        }
    }

    /// A transaction lines up; a job is given back.
    pub(super) fn take_in(&mut self, request: Request, now: Instant) -> Option<Job> {
        match request {
            Request::Job(job) => Some(job),
            Request::Commit(request) => {
                self.company.note(plane(&request.txn), now);
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

    /// Those whose turn it is; none if nobody waits.
    pub(super) fn next_group(&mut self, now: Instant) -> Vec<CommitRequest> {
        let most = if self.company.is_there(now) {
            OF_ONE_PLANE
        } else {
            GROUP
        };
        let mut of_plane: HashMap<Option<PlaneId>, usize> = HashMap::new();
        let (mut group, mut bytes) = (Vec::new(), 0);
        let mut passed_over = VecDeque::new();
        while let Some(request) = self.waiting.pop_front() {
            if group.len() >= GROUP || bytes >= GROUP_BYTES {
                self.waiting.push_front(request);
                break;
            }
            let count = of_plane.entry(plane(&request.txn)).or_default();
            if *count >= most {
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
        group
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
        assert_eq!(line.next_group(now).len(), GROUP);
        assert_eq!(names(&line.next_group(now)), [GROUP.to_string()]);
        assert!(line.next_group(now).is_empty());
    }

    #[test]
    fn who_writes_little_is_in_the_next_group() {
        let (mut line, now) = (Line::new(), Instant::now());
        for n in 0..100 {
            line.take_in(request(ONE, &n.to_string()), now);
        }
        line.take_in(request(OTHER, "quiet"), now);
        let group = names(&line.next_group(now));
        assert_eq!(group.len(), OF_ONE_PLANE + 1);
        assert_eq!(group.last().map(String::as_str), Some("quiet"));
        // Everybody of a plane goes in the order in which they came.
        let mut rest = Vec::new();
        while let group = names(&line.next_group(now))
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
        line.next_group(now);
        for n in 0..100 {
            line.take_in(request(ONE, &n.to_string()), now);
        }
        assert_eq!(line.next_group(now).len(), OF_ONE_PLANE);
        assert_eq!(line.next_group(now + TOGETHER).len(), 100 - OF_ONE_PLANE);
    }

    #[test]
    fn a_job_waits_for_those_before_it() {
        let (mut line, now) = (Line::new(), Instant::now());
        let (sender, mut receiver) = mpsc::channel(8);
        for request in [request(ONE, "a"), Request::Job(Job::Close), request(ONE, "b")] {
            assert!(sender.try_send(request).is_ok());
        }
        assert!(matches!(line.fill(&mut receiver, now), Some(Job::Close)));
        assert_eq!(names(&line.next_group(now)), ["a"]);
        assert!(line.fill(&mut receiver, now).is_none());
        assert_eq!(names(&line.next_group(now)), ["b"]);
    }
}
