//! The samples of the documentation, applied as they stand.

use std::path::Path;

use serde_json::Value;

use super::registration::{GROUP, path, says, world};

#[tokio::test]
async fn the_samples_of_the_documentation_apply_cleanly_and_settle() {
    let (_world, root) = world(&[
        "control-plane-registration",
        "control-plane-endpoint",
        "control-plane-class",
    ])
    .await;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/samples/control-planes");
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 5);
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
        let (condition, reason) = match plural.as_str() {
            "controlplaneclasses" | "controlplaneregistrations" => ("Accepted", "Accepted"),
            "controlplaneendpoints" => ("Ready", "Reconciled"),
            _ => continue,
        };
        root.until(&path(&plural, &name), "settled", |found| {
            says(found, condition, "True", reason, "")
        })
        .await;
    }
}
