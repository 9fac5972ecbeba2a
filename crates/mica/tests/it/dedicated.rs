//! Dedicated servers as processes: started, found again, exchanged and ended by their providers.

mod adopt;
mod alone;
mod etcd;
mod migration;
mod operator;
mod process;
mod registered;
mod shop;
mod site;
mod version;
mod witness;
