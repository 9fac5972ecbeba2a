//! `mica new controller NAME`: a crate with a kind, a reconciler, a `main` and a test.
//!
//! What it writes is the crate `examples/greeting` under another name: that crate is built and tested with all others, so what
//! is written compiles and passes its test.

mod name;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::output;
use name::Name;

/// The files, by their place in the new crate.
const FILES: [(&str, &str); 6] = [
    (".gitignore", include_str!("../../../../examples/greeting/.gitignore")),
    ("Cargo.toml", include_str!("../../../../examples/greeting/Cargo.toml")),
    ("README.md", include_str!("../../../../examples/greeting/README.md")),
    ("src/lib.rs", include_str!("../../../../examples/greeting/src/lib.rs")),
    ("src/main.rs", include_str!("../../../../examples/greeting/src/main.rs")),
    (
        "tests/reconciles.rs",
        include_str!("../../../../examples/greeting/tests/reconciles.rs"),
    ),
];

/// How the example names the sources that it is built against.
const SOURCES: &str = "../..";
/// What every checkout of the sources has.
const RUNTIME: &str = "crates/mica-runtime/Cargo.toml";

/// Writes a new crate, and prints where it is.
pub fn controller(name: &str, directory: Option<PathBuf>, sources: Option<PathBuf>) -> anyhow::Result<()> {
    let name = Name::parse(name)?;
    let directory = directory.unwrap_or_else(|| PathBuf::from(name.kebab()));
    let sources = find_sources(sources)?;
    if directory.exists() {
        bail!("{} is there already: it is not touched", directory.display());
    }
    for (place, text) in FILES {
        let path = directory.join(place);
        let folder = path.parent().unwrap_or(&directory);
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let mut text = name.put_into(text);
        if place == "Cargo.toml" {
            for used in ["mica-runtime", "mica-testkit"] {
                let at = |root: &str| format!("path = \"{root}/crates/{used}\"");
                text = text.replace(&at(SOURCES), &at(&sources.display().to_string()));
            }
        }
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    output::print(&format!("{0}\n\nNext:\n  cd {0} && cargo test\n", directory.display()))?;
    Ok(())
}

/// The sources to build against: those that were named, or those that this is called in.
fn find_sources(named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(named) = named {
        let sources = named.canonicalize().with_context(|| named.display().to_string())?;
        if !sources.join(RUNTIME).is_file() {
            bail!("{} has no {RUNTIME}: it is no checkout of Mica", sources.display());
        }
        return Ok(sources);
    }
    let here = std::env::current_dir().context("finding this directory")?;
    let found = here.ancestors().find(|folder| folder.join(RUNTIME).is_file());
    match found.map(Path::to_owned) {
        Some(sources) => Ok(sources),
        None => bail!("where the sources of Mica are is not known: say it with --mica DIR"),
    }
}
