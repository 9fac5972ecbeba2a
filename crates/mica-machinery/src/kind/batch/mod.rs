//! The kinds of `batch`.

pub mod cronjob;
pub mod job;
mod job_policy;
mod job_status;
mod schedule;
