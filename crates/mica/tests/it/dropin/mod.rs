//! Standing in for kube-apiserver and etcd: their flags, the pair as a test environment runs it, and a real etcd behind.

mod environment;
mod etcd;
mod flags;
mod pair;
