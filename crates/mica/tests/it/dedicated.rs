//! Dedicated servers as processes: started, found again, exchanged and ended by their providers.

mod etcd;
mod operator;
mod process;
mod shop;
mod version;
