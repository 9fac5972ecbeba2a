//! The libFuzzer binary. `MICA_FUZZ` names the target; one binary serves all, because linking each takes longer than building it.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mica_fuzz::Target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("MICA_FUZZ").unwrap_or_default();
    let found = mica_fuzz::TARGETS.iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("set MICA_FUZZ to one of {:?}", mica_fuzz::names()))
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
