//! `mica new`: what it writes is what is built and tested here, under another name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::run;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/mica is two folders down")
        .to_owned()
}

/// Every file of a crate, by its place in it.
fn files(root: &Path) -> BTreeMap<String, String> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let place = path.strip_prefix(root).unwrap().display().to_string();
                found.insert(place, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_new_controller_is_the_example_that_is_built_and_tested_here() {
    let home = tempfile::tempdir().unwrap();
    let sources = project();
    let sources = sources.to_str().unwrap();
    let (code, told, error) = run(home.path(), &["new", "controller", "greeting", "--mica", sources]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(told.contains("cd greeting && cargo test"), "{told}");
    let mut written = files(&home.path().join("greeting"));
    let manifest = written.get_mut("Cargo.toml").unwrap();
    *manifest = manifest.replace(sources, "../..");
    assert_eq!(written, files(&project().join("examples/greeting")));

    let (code, _, error) = run(home.path(), &["new", "controller", "greeting", "--mica", sources]);
    assert_eq!(code, 1);
    assert!(error.contains("greeting is there already"), "{error}");
}

#[test]
fn a_new_controller_has_its_own_name_everywhere_and_cargo_knows_it() {
    let home = tempfile::tempdir().unwrap();
    let sources = project();
    let arguments = [
        "new",
        "controller",
        "web-shop",
        "shop",
        "--mica",
        sources.to_str().unwrap(),
    ];
    let (code, _, error) = run(home.path(), &arguments);
    assert_eq!((code, error.as_str()), (0, ""));
    let shop = home.path().join("shop");
    for (place, text) in files(&shop) {
        assert!(!text.to_lowercase().contains("greeting"), "{place}");
    }
    let lib = std::fs::read_to_string(shop.join("src/lib.rs")).unwrap();
    assert!(lib.contains("kind = \"WebShop\"") && lib.contains("controller(\"web-shop\")"));
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let known = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(&shop)
        .output()
        .unwrap();
    assert!(known.status.success(), "{}", String::from_utf8_lossy(&known.stderr));
    let known = String::from_utf8(known.stdout).unwrap();
    assert!(
        known.contains("\"name\":\"web-shop\"") && known.contains("\"name\":\"mica-runtime\""),
        "{known}"
    );
}

#[test]
fn a_name_or_a_place_that_is_none_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let (code, _, error) = run(home.path(), &["new", "controller", "Web_Shop", "--mica", "."]);
    assert_eq!(code, 1);
    assert!(error.contains("is no name for a controller"), "{error}");
    let (code, _, error) = run(home.path(), &["new", "controller", "shop", "--mica", "."]);
    assert_eq!(code, 1);
    assert!(error.contains("it is no checkout of Mica"), "{error}");
    let (code, _, error) = run(home.path(), &["new", "controller", "shop"]);
    assert_eq!(code, 1);
    assert!(error.contains("--mica DIR"), "{error}");
    assert!(!home.path().join("shop").exists());
}
