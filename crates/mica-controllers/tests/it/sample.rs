//! The samples of the documentation, applied as they stand.

use std::path::Path;

use serde_json::Value;

use super::registration::{GROUP, path, says, world};

#[tokio::test]
async fn the_samples_of_the_documentation_apply_cleanly_and_every_object_is_ready() {
    let (_world, root) = world(&["*"]).await;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/samples/control-planes");
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 5);
    let mut made = Vec::new();
    for file in files {
        let text = std::fs::read(&file).unwrap();
        let json = mica_machinery::yaml::to_json(&text).unwrap().json;
        let object: Value = serde_json::from_slice(&json).unwrap();
        let plural = match object["kind"].as_str().unwrap() {
            "ControlPlaneClass" => "controlplaneclasses".to_owned(),
            kind => format!("{}s", kind.to_ascii_lowercase()),
        };
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        root.create(&format!("{GROUP}/{plural}?fieldValidation=Strict"), object)
            .await;
        made.push((plural, name));
    }
    // The class registers its control planes by itself.
    made.push(("controlplaneregistrations".to_owned(), "shop".to_owned()));
    for (plural, name) in made {
        let expected: &[(&str, &str)] = match plural.as_str() {
            "controlplaneclasses" => &[("Accepted", "Accepted")],
            "controlplaneregistrations" => &[("Accepted", "Accepted"), ("Ready", "Resolved")],
            "controlplaneendpoints" => &[("Ready", "Reconciled"), ("Routed", "Routed")],
            _ => &[("Ready", "Reconciled")],
        };
        let settled = |found: Option<&Value>| {
            let mut all = expected.iter();
            all.all(|(condition, reason)| says(found, condition, "True", reason, ""))
        };
        root.until(&path(&plural, &name), "ready", settled).await;
    }
}
