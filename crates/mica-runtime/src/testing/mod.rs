//! For tests of controllers: an API that fails as real ones do. Behind the feature `testing`.
//!
//! A real API to put behind it is in the crate `mica-testkit`: a server in the test's own process, with as many control planes as
//! the test wants.

mod faults;

pub use faults::{Fault, Faults, Sent, Times};
