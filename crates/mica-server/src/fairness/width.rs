//! How many seats a request takes: as many as its answer is large.
//!
//! Upstream counts the bytes that a list brings into memory, as it knows them from the last minute. We count what the last
//! list of the same place sent. A list that has not been seen takes one seat, and is known from then on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mica_api::PlaneId;
use xxhash_rust::xxh3::Xxh3;

use crate::request::{Query, ResourcePath, Verb};

/// Bytes of an answer for each seat. Upstream's number.
const BYTES_PER_SEAT: u64 = 100_000;

/// What a list takes at most: it is sent piece by piece, so that more would say nothing. As upstream for lists from its cache.
const MAX_SEATS: u64 = 10;

/// Objects for each seat, where a client says how many it wants at most.
const OBJECTS_PER_SEAT: u64 = 100;

/// Places whose size is known. Places that meet in one forget each other, which costs an estimate.
const PLACES: usize = 4096;

/// Seats that a request takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Width(pub u32);

impl Width {
    pub const ONE: Self = Self(1);
}

/// The sizes of lists: in each place the upper half says which list, the lower how many KiB.
pub struct Sizes(Box<[AtomicU64]>);

impl Default for Sizes {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

/// A list whose size is to be told when it is known.
pub struct Measured {
    sizes: Arc<Sizes>,
    place: u64,
}

impl Measured {
    pub fn tell(&self, bytes: u64) {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let text = (self.place & !u64::from(u32::MAX)) | u64::from(kib);
        self.sizes.slot(self.place).store(text, Ordering::Relaxed);
    }
}

impl Sizes {
    fn slot(&self, place: u64) -> &AtomicU64 {
        &self.0[place as usize % PLACES]
    }

    /// What a request takes, and how to tell what it took.
    pub fn estimate(
        self: &Arc<Self>,
        plane: PlaneId,
        verb: Verb,
        path: &ResourcePath,
        query: &Query,
    ) -> (Width, Option<Measured>) {
        let lists = match verb {
            Verb::List | Verb::DeleteCollection => true,
            // Those that begin with what there is.
            Verb::Watch => matches!(query.text("resourceVersion"), "" | "0") || query.flag("sendInitialEvents"),
            _ => false,
        };
        if !lists || path.name.is_some() || query.text("fieldSelector").contains("metadata.name=") {
            return (Width::ONE, None);
        }
        let place = place(plane, path);
        let known = self.slot(place).load(Ordering::Relaxed);
        let same = known >> 32 == place >> 32;
        let bytes = if same { (known & u64::from(u32::MAX)) * 1024 } else { 0 };
        let mut seats = bytes.div_ceil(BYTES_PER_SEAT);
        let limit = query
            .int("limit")
            .ok()
            .flatten()
            .and_then(|limit| u64::try_from(limit).ok());
        // A page is no more than it says, and tells nothing of the whole.
        if let Some(limit) = limit.filter(|limit| *limit > 0) {
            seats = seats.min(limit.div_ceil(OBJECTS_PER_SEAT));
        }
        let width = u32::try_from(seats.clamp(1, MAX_SEATS)).expect("at most ten");
        let whole = limit.unwrap_or(0) == 0 && verb == Verb::List;
        let measured = whole.then(|| Measured {
            sizes: self.clone(),
            place,
        });
        (Width(width), measured)
    }
}

fn place(plane: PlaneId, path: &ResourcePath) -> u64 {
    let mut hash = Xxh3::new();
    let namespace = path.namespace.as_deref().unwrap_or_default();
    for part in [plane.as_str(), &path.group, &path.resource, namespace] {
        hash.update(part.as_bytes());
        hash.update(&[0]);
    }
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width(sizes: &Arc<Sizes>, verb: Verb, query: &str) -> u32 {
        let path = ResourcePath {
            resource: "configmaps".into(),
            ..ResourcePath::default()
        };
        sizes
            .estimate(PlaneId::ROOT, verb, &path, &Query::parse(Some(query)))
            .0
            .0
    }

    #[test]
    fn a_list_takes_what_the_last_one_took() {
        let sizes = Arc::new(Sizes::default());
        let path = ResourcePath {
            resource: "configmaps".into(),
            ..ResourcePath::default()
        };
        assert_eq!(width(&sizes, Verb::List, ""), 1);
        let (_, measured) = sizes.estimate(PlaneId::ROOT, Verb::List, &path, &Query::default());
        measured.unwrap().tell(450_000);
        assert_eq!(width(&sizes, Verb::List, ""), 5);
        assert_eq!(width(&sizes, Verb::List, "limit=200"), 2);
        assert_eq!(width(&sizes, Verb::List, "fieldSelector=metadata.name%3Dx"), 1);
        assert_eq!(width(&sizes, Verb::Watch, "resourceVersion=0"), 5);
        assert_eq!(width(&sizes, Verb::Watch, "resourceVersion=17"), 1);
        assert_eq!(width(&sizes, Verb::Get, ""), 1);
        let (_, measured) = sizes.estimate(PlaneId::ROOT, Verb::List, &path, &Query::default());
        measured.unwrap().tell(1 << 40);
        assert_eq!(width(&sizes, Verb::List, ""), 10);
    }
}
