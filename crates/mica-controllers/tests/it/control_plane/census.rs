//! How control planes stand, in numbers.

use mica_api::control_plane::Mode;
use mica_controllers::census::Census;

use super::*;

/// The number of a family with these values of its labels.
fn number(census: &Census, family: &str, labels: &[&str]) -> u64 {
    let families = census.families();
    let found = families.iter().find(|one| one.name == family).unwrap();
    let is = |values: &[(&'static str, String)]| values.iter().map(|(_, value)| value).eq(labels);
    found.samples.iter().find(|one| is(&one.labels)).unwrap().value
}

/// How many migrations to a mode there were of what became of them: started, completed and cancelled.
pub fn migrations(census: &Census, to: Mode) -> [u64; 3] {
    let to = format!("{to:?}");
    ["Started", "Completed", "Cancelled"].map(|event| number(census, "mica_control_plane_migrations", &[&to, event]))
}

#[tokio::test]
async fn control_planes_are_counted_by_phase_as_long_as_they_are() {
    let server = server().await;
    let settings = Settings::new(world::home(&server));
    let census = settings.census.clone();
    let world = World::with_settings(server, settings).await;
    let root = world.root();
    let phases = || {
        let phases = ["Provisioning", "Ready", "Migrating", "Failed"];
        phases.map(|phase| number(&census, "mica_control_planes", &[phase]))
    };
    let until = async |expected: [u64; 4]| {
        root.until(CONTROL_PLANES, &format!("{expected:?}"), |_| phases() == expected)
            .await
    };
    assert_eq!(phases(), [0; 4]);
    for name in ["a", "b"] {
        control_plane(&root, name, json!({"deletionPolicy": "Destroy"})).await;
    }
    control_plane(&root, "c", json!({"classRef": {"name": "none"}})).await;
    until([0, 2, 0, 1]).await;
    make(&root, CLASSES, "ControlPlaneClass", "none", json!({})).await;
    until([0, 3, 0, 0]).await;
    for name in ["a", "c"] {
        root.delete(&format!("{CONTROL_PLANES}/{name}")).await;
        root.until_gone(&format!("{CONTROL_PLANES}/{name}")).await;
    }
    until([0, 1, 0, 0]).await;
}
