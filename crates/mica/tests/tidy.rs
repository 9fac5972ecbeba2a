//! Keeps what review would have to watch for: the arrows between crates, the files and documents named, how files open.
//!
//! Each test lists everything that is wrong at once, with the place. Nothing here needs the network or a running server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Which of our crates each crate may use. A new arrow is a decision about the design: see ARCHITECTURE.md.
///
/// The serving side (server, services) and the using side (runtime, controllers, federation) share only `api` and
/// `machinery`: they meet over the API. The bench knows the server only by its protocol, as a user does.
const ARROWS: &[(&str, &[&str])] = &[
    ("mica-api", &[]),
    ("mica-machinery", &["mica-api"]),
    ("mica-store", &["mica-api"]),
    ("mica-server", &["mica-api", "mica-machinery", "mica-store"]),
    ("mica-services", &["mica-api", "mica-machinery", "mica-server"]),
    ("mica-runtime", &[]),
    ("mica-controllers", &["mica-api", "mica-machinery", "mica-runtime"]),
    ("mica-federation", &["mica-api", "mica-machinery", "mica-runtime"]),
    ("mica", EVERYTHING),
    (
        "mica-testkit",
        &["mica-api", "mica-machinery", "mica-store", "mica-server"],
    ),
    ("mica-bench", &[]),
    ("greeting", &["mica-runtime"]),
    ("mica-fuzz", &["mica-machinery", "mica-store", "mica-server"]),
];

const EVERYTHING: &[&str] = &[
    "mica-api",
    "mica-machinery",
    "mica-store",
    "mica-server",
    "mica-services",
    "mica-runtime",
    "mica-controllers",
    "mica-federation",
];

const LONGEST_FILE: usize = 800;

/// Files that may be longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Folders that hold nothing we wrote.
const NOT_OURS: &[&str] = &[
    ".git",
    ".mica",
    ".tools",
    "__pycache__",
    "node_modules",
    "results",
    "target",
];

#[test]
fn crates_use_only_the_crates_below_them() {
    let allowed: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in workspace_packages() {
        let name = package["name"].as_str().expect("a package has a name");
        let Some(may_use) = allowed.get(name) else {
            wrong.push(format!(
                "{name} is not in the table of crates: add it with what it may use"
            ));
            continue;
        };
        // Tests may use more: the arrows are about what ships.
        let dependencies = package["dependencies"]
            .as_array()
            .expect("a package lists its dependencies");
        for dependency in dependencies.iter().filter(|d| d["kind"] != "dev") {
            let used = dependency["name"].as_str().expect("a dependency has a name");
            if allowed.contains_key(used) && !may_use.contains(&used) {
                wrong.push(format!("{name} must not use {used}"));
            }
        }
    }
    assert_none("crate arrows", &wrong);
}

#[test]
fn every_rust_file_says_first_what_it_owns() {
    let wrong: Vec<_> = files_ending(&["rs"])
        .filter(|path| !read(path).starts_with("//!"))
        .map(|path| format!("{} does not open with `//!`", shown(&path)))
        .collect();
    assert_none("files without an opening", &wrong);
}

#[test]
fn no_file_holds_two_ideas() {
    let listed: BTreeSet<_> = LONG_FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
    let mut wrong = Vec::new();
    let mut long = BTreeSet::new();
    for path in files_ending(&["rs", "go", "py", "ts", "tsx"]) {
        let lines = read(&path).lines().count();
        if lines > LONGEST_FILE {
            long.insert(shown(&path));
            if !listed.contains(&shown(&path)) {
                wrong.push(format!("{} has {lines} lines (more than {LONGEST_FILE})", shown(&path)));
            }
        }
    }
    wrong.extend(
        listed
            .difference(&long)
            .map(|path| format!("{path} is listed as long and is not")),
    );
    assert_none("long files", &wrong);
}

#[test]
fn every_path_that_the_architecture_names_exists() {
    let text = read(&project().join("ARCHITECTURE.md"));
    let wrong: Vec<_> = backticked(&text)
        .filter(|span| is_path(span))
        .filter(|span| !project().join(span).exists() && !project().join("crates").join(span).exists())
        .map(|span| format!("`{span}` does not exist"))
        .collect();
    assert_none("paths in ARCHITECTURE.md", &wrong);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut wrong = Vec::new();
    for document in files_ending(&["md"]) {
        let text = read(&document);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            let folder = document.parent().expect("a file is in a folder");
            if !path.is_empty() && !path.contains("://") && !folder.join(path).exists() {
                wrong.push(format!("{} links to {path}", shown(&document)));
            }
        }
    }
    assert_none("dead links", &wrong);
}

#[test]
fn no_file_names_a_place_on_one_machine() {
    // Put together here so that this file does not name them itself.
    let places = ["work", "root", "home", "farm"].map(|place| format!("/{place}/"));
    let mut wrong = Vec::new();
    for path in text_files() {
        for (number, line) in read(&path).lines().enumerate() {
            let names_one = places.iter().any(|place| {
                // Inside a longer path the word is somebody's folder, not the machine's.
                let starts_there =
                    |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_.-}*".contains(c));
                line.match_indices(place.as_str()).any(|(at, _)| starts_there(at))
            });
            if names_one {
                wrong.push(format!("{}:{} {}", shown(&path), number + 1, line.trim()));
            }
        }
    }
    assert_none("machine paths", &wrong);
}

#[test]
fn every_known_difference_is_in_the_document() {
    let document = read(&project().join("docs/conformance.md"));
    let list = read(&project().join("compat/golden/known-differences.txt"));
    let wrong: Vec<_> = list
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(" | ").nth(2))
        .filter(|case| !document.contains(&case.replace('|', "\\|")))
        .map(|case| format!("{case}: run `make golden-update` or `compat/golden/check.py --table`"))
        .collect();
    assert_none("differences missing from docs/conformance.md", &wrong);
}

fn assert_none(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/mica is two folders down")
        .to_owned()
}

fn shown(path: &Path) -> String {
    path.strip_prefix(project()).unwrap_or(path).display().to_string()
}

fn read(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_else(|err| panic!("{}: {err}", shown(path)));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn workspace_packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(project())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    metadata["packages"].as_array().expect("metadata has packages").clone()
}

fn files_ending(extensions: &[&str]) -> impl Iterator<Item = PathBuf> {
    all_files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x)))
}

/// Everything but what is binary, and the lists of what package managers fetched.
fn text_files() -> impl Iterator<Item = PathBuf> {
    const SKIPPED: &[&str] = &["bin", "gz", "ico", "lock", "pb", "png", "sum", "woff2", "zst"];
    all_files()
        .into_iter()
        .filter(|path| !path.extension().is_some_and(|e| SKIPPED.iter().any(|x| e == *x)))
}

fn all_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![project()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)
            .unwrap_or_else(|err| panic!("{}: {err}", shown(&folder)))
            .flatten()
        {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            // Also files: in a second work tree `.git` is one.
            if NOT_OURS.iter().any(|folder| name == *folder) {
                continue;
            }
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    files
}

/// The inline code of a Markdown text; fenced blocks are examples, not claims.
fn backticked(text: &str) -> impl Iterator<Item = &str> {
    let outside_fences = text.split("\n```").step_by(2);
    outside_fences.flat_map(|part| part.split('`').skip(1).step_by(2))
}

/// A path in this project: `a/b`, or a file name with an extension; not an address, a glob or an API version.
fn is_path(span: &str) -> bool {
    let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let api_version = span
        .split_once('/')
        .is_some_and(|(group, rest)| group.contains('.') && rest.starts_with('v'));
    let file = [".md", ".rs", ".toml", ".txt", ".json", ".py"]
        .iter()
        .any(|e| span.ends_with(e));
    plain && !span.starts_with('/') && !api_version && (file || span.contains('/'))
}
