//! Every target runs over its corpus: seeds that show what it reads, and what fuzzing found.

use std::path::Path;

use mica_fuzz::TARGETS;

/// What the corpus may weigh together: it is read by people, and cloned by all.
const MOST_BYTES: u64 = 300 * 1024;

fn corpus() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    files
}

#[test]
fn every_target_keeps_its_promises_over_its_corpus() {
    let mut broken = Vec::new();
    for target in TARGETS {
        let files = files(&corpus().join(target.name));
        assert!(!files.is_empty(), "{} has no seed", target.name);
        for file in files {
            let data = std::fs::read(&file).expect("a readable file");
            if std::panic::catch_unwind(|| (target.run)(&data)).is_err() {
                broken.push(file);
            }
        }
    }
    assert_eq!(broken, Vec::<std::path::PathBuf>::new());
}

#[test]
fn the_corpus_is_small_and_belongs_to_targets() {
    let mut bytes = 0;
    for folder in files(corpus()) {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(mica_fuzz::names().contains(&name.as_str()), "{name} is no target");
        bytes += files(&folder)
            .iter()
            .map(|file| file.metadata().expect("a file").len())
            .sum::<u64>();
    }
    assert!(bytes <= MOST_BYTES, "{bytes} bytes");
}
