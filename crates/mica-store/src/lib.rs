//! Ordered bytes with revisions: the [`Store`] trait, its backends and the conformance suite that all of them pass.
//!
//! Nothing here knows a Kubernetes kind. Keys name a plane and a resource because ranges are asked for by those;
//! values are opaque.

pub mod conformance;
pub mod embedded;
pub mod etcd;
pub mod hub;
pub mod key;
pub mod mem;
pub mod store;

pub use embedded::EmbeddedStore;
pub use etcd::{EtcdConfig, EtcdStore};
pub use key::{Key, KeyRange, PlaneKeys};
pub use mem::MemStore;
pub use store::{
    AdvanceError, Change, CommitError, Committed, Compare, Event, FARTHEST, Page, RangeQuery, ReadError, Record,
    Revision, Signal, Store, StoreStatus, Txn, Usage, Watch, WatchError, WatchSource, Write,
};
