//! What classes say is enforced, and a change of a class reaches every control plane that names it.

use mica_api::control_plane::REGISTER_ANNOTATION;

use super::*;

async fn class(root: &Place, name: &str, spec: Value) {
    make(root, CLASSES, "ControlPlaneClass", name, spec).await;
}

#[tokio::test]
async fn a_class_that_comes_later_or_forbids_a_mode_says_so_and_is_followed() {
    let (_world, root) = world().await;
    control_plane(&root, "a", json!({"classRef": {"name": "c"}})).await;
    let refused = until_says(&root, "a", "ClassResolved", "False", "ClassNotFound").await;
    assert!(message(&refused, "Ready").contains("\"c\" does not exist"));
    assert_eq!(root.get(&format!("{PLANES}/a")).await, None);
    class(&root, "c", json!({"modesAllowed": ["Dedicated"]})).await;
    let refused = until_says(&root, "a", "ClassResolved", "False", "ModeNotAllowed").await;
    assert_eq!(refused["status"]["phase"], "Failed");
    root.patch(&format!("{CLASSES}/c"), json!({"spec": {"modesAllowed": ["Virtual"]}}))
        .await;
    until_ready(&root, "a").await;
    root.patch(&format!("{CONTROL_PLANES}/a"), json!({"spec": {"mode": "Dedicated"}}))
        .await;
    let refused = until_says(&root, "a", "Ready", "False", "ModeNotAllowed").await;
    assert!(
        !refused["status"]["endpoint"].as_str().unwrap().is_empty(),
        "what was published stays"
    );
    root.patch(&format!("{CLASSES}/c"), json!({"spec": {"modesAllowed": null}}))
        .await;
    until_says(&root, "a", "Ready", "False", "ModeNotSupported").await;
    root.patch(&format!("{CONTROL_PLANES}/a"), json!({"spec": {"mode": "Virtual"}}))
        .await;
    until_ready(&root, "a").await;
}

#[tokio::test]
async fn a_way_to_let_administrators_in_that_there_is_not_is_refused_until_the_class_says_another() {
    let (_world, root) = world().await;
    class(&root, "c", json!({"auth": {"model": "oidc"}})).await;
    control_plane(&root, "a", json!({"classRef": {"name": "c"}})).await;
    let refused = until_says(&root, "a", "ClassResolved", "False", "AuthModelNotSupported").await;
    assert_eq!(refused["status"]["phase"], "Failed");
    assert!(message(&refused, "Ready").contains("write \"basic\""), "{refused}");
    assert_eq!(root.get(&secret_path("a")).await, None, "nobody is let in");
    for model in ["v0", "basic"] {
        root.patch(&format!("{CLASSES}/c"), json!({"spec": {"auth": {"model": model}}}))
            .await;
        until_ready(&root, "a").await;
    }
}

#[tokio::test]
async fn limits_roles_and_services_follow_the_class_to_planes_that_are_there() {
    let (_world, root) = world().await;
    let spec = json!({"limits": {"objects": 500, "watches": 50}, "planeClass": "small", "profile": "Generic",
        "auth": {"defaultRole": "view"}, "services": ["controllers"]});
    class(&root, "c", spec).await;
    control_plane(&root, "a", json!({"classRef": {"name": "c"}})).await;
    control_plane(&root, "other", json!({})).await;
    until_ready(&root, "a").await;
    until_ready(&root, "other").await;
    let plane = root.get(&format!("{PLANES}/a")).await.unwrap();
    assert_eq!(plane["spec"]["limits"], json!({"objects": 500, "watches": 50}));
    assert_eq!(
        (&plane["spec"]["className"], &plane["spec"]["profile"]),
        (&json!("small"), &json!("Generic"))
    );
    let binding = format!("/clusters/a/control-plane{BINDING}");
    assert_eq!(root.get(&binding).await.unwrap()["roleRef"]["name"], "view");
    let registration = root.get(&format!("{REGISTRATIONS}/a")).await.unwrap();
    assert_eq!(registration["spec"]["services"], json!(["controllers"]));
    assert_eq!(registration["metadata"]["ownerReferences"][0]["kind"], "ControlPlane");

    let change = json!({"spec": {"limits": {"objects": 600, "watches": null}, "planeClass": null,
        "auth": {"defaultRole": "edit"}, "services": ["scheduler"]}});
    root.patch(&format!("{CLASSES}/c"), change).await;
    root.until(&format!("{PLANES}/a"), "changed", |found| {
        let spec = found.map(|found| &found["spec"]);
        spec.is_some_and(|spec| spec["limits"] == json!({"objects": 600}) && spec["className"].is_null())
    })
    .await;
    root.until(&binding, "changed", |found| {
        found.is_some_and(|found| found["roleRef"]["name"] == "edit")
    })
    .await;
    root.until(&format!("{REGISTRATIONS}/a"), "changed", |found| {
        found.is_some_and(|found| found["spec"]["services"] == json!(["scheduler"]))
    })
    .await;
    assert_eq!(root.get(&format!("{REGISTRATIONS}/other")).await, None);
}

#[tokio::test]
async fn the_profile_of_a_class_is_what_its_planes_are_born_with_and_stays() {
    let (world, root) = world().await;
    let deployments = |name: &str| format!("/clusters/{name}/control-plane/apis/apps/v1/deployments");
    let serves = async |name: &str| ask(&world.client, "GET", &deployments(name), Value::Null).await.is_ok();
    for (name, profile) in [("generic", "Generic"), ("kubernetes", "Kubernetes")] {
        class(&root, name, json!({"profile": profile})).await;
        control_plane(&root, name, json!({"classRef": {"name": name}})).await;
        until_ready(&root, name).await;
        assert_eq!(serves(name).await, profile == "Kubernetes");
        let plane = root.get(&format!("{PLANES}/{name}")).await.unwrap();
        assert_eq!(plane["spec"]["profile"], profile);
    }
    // What is born otherwise stays so, and says it.
    root.patch(
        &format!("{CLASSES}/generic"),
        json!({"spec": {"profile": "Kubernetes"}}),
    )
    .await;
    root.until(&format!("{CONTROL_PLANES}/generic"), "told", |found| {
        found.is_some_and(|found| message(found, "Provisioned").contains("its profile stays Generic"))
    })
    .await;
    until_ready(&root, "generic").await;
    assert!(!serves("generic").await);
}

#[tokio::test]
async fn a_registration_made_by_itself_can_be_switched_off_and_is_nobody_s_to_take() {
    let (_world, root) = world().await;
    class(&root, "c", json!({"services": ["controllers"]})).await;
    control_plane(&root, "a", json!({"classRef": {"name": "c"}})).await;
    let registration = format!("{REGISTRATIONS}/a");
    root.until(&registration, "made", |found| found.is_some()).await;
    root.delete(&registration).await;
    root.until(&registration, "made again", |found| found.is_some()).await;
    let off = json!({"metadata": {"annotations": {REGISTER_ANNOTATION: "false"}}});
    root.patch(&format!("{CONTROL_PLANES}/a"), off).await;
    root.until_gone(&registration).await;
    until_ready(&root, "a").await;
    let own = json!({"controlPlaneRef": {"name": "b"}});
    make(&root, REGISTRATIONS, "ControlPlaneRegistration", "b", own).await;
    control_plane(&root, "b", json!({"classRef": {"name": "c"}})).await;
    until_says(&root, "b", "Registered", "False", "RegistrationTaken").await;
    root.delete(&format!("{REGISTRATIONS}/b")).await;
    until_ready(&root, "b").await;
}
