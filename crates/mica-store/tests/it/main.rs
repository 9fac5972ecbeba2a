//! The backends that need nothing but this machine, against the contract and against faults.

mod embedded;
mod mem;
