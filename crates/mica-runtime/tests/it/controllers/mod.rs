//! Controllers over planes of a real server: what they see, whichever way it is read.

mod faults;
mod fleet;
mod mapping;
mod outcome;
mod refused;
mod scale;
mod stage;
mod tap;
mod transparent;
