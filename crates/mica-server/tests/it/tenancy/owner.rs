//! Members of organizations: where they are, what stays, and that somebody owns every organization.

use serde_json::json;

use super::super::world::text;
use super::{ORGANIZATIONS, members, membership, organization, platform};

#[tokio::test]
async fn a_membership_lies_in_the_namespace_of_its_organization_and_stays_its() {
    let (_world, root) = platform().await;
    for name in ["acme", "other"] {
        root.post(ORGANIZATIONS, &organization(name)).await.expect(201);
    }
    let refused = root.post(&members("acme"), &membership("m", "other", "ann", &[])).await;
    assert_eq!(refused.code(), 422, "{}", refused.json());
    root.post(&members("acme"), &membership("m", "acme", "ann", &["viewer"]))
        .await
        .expect(201);
    let one = format!("{}/m", members("acme"));
    for change in [
        json!({"spec": {"userRef": {"name": "eve"}}}),
        json!({"spec": {"organizationRef": {"name": "other"}}}),
    ] {
        let refused = root.patch(&one, &change).await;
        assert_eq!(refused.code(), 422, "{change}: {}", refused.json());
    }
    let roles = json!([{"name": "a"}, {"name": "a", "namespace": "n"}]);
    let twice = root.patch(&one, &json!({"spec": {"roles": roles}})).await;
    assert_eq!(twice.code(), 422, "{}", twice.json());
    for (field, found) in [("userRef", "ann"), ("organizationRef", "acme")] {
        let selected = |value: &str| format!("{}?fieldSelector=spec.{field}.name%3D{value}", members("acme"));
        let list = root.get(&selected(found)).await.expect(200);
        assert_eq!(text(&list, "/items/0/metadata/name"), "m", "{field}");
        let none = root.get(&selected("x")).await.expect(200);
        assert_eq!(none["items"].as_array().map(Vec::len), Some(0), "{field}");
    }
}

#[tokio::test]
async fn the_last_owner_neither_goes_nor_loses_the_role() {
    let (_world, root) = platform().await;
    root.post(ORGANIZATIONS, &organization("acme")).await.expect(201);
    for (name, roles) in [("ann", &["owner"][..]), ("bob", &["viewer"])] {
        root.post(&members("acme"), &membership(name, "acme", name, roles))
            .await
            .expect(201);
    }
    let (ann, bob) = (format!("{}/ann", members("acme")), format!("{}/bob", members("acme")));
    let demoted = json!({"spec": {"roles": [{"name": "viewer"}]}});
    for refused in [
        root.delete(&ann).await,
        root.delete(&format!("{ann}?dryRun=All")).await,
        root.patch(&ann, &demoted).await,
        root.delete(&members("acme")).await,
    ] {
        assert_eq!(refused.code(), 403, "{}", refused.json());
    }
    root.get(&ann).await.expect(200);
    if root.get(&bob).await.code() == 404 {
        root.post(&members("acme"), &membership("bob", "acme", "bob", &["viewer"]))
            .await
            .expect(201);
    }
    // With a second owner the first may go.
    root.patch(&bob, &json!({"spec": {"roles": [{"name": "owner"}]}}))
        .await
        .expect(200);
    root.patch(&ann, &demoted).await.expect(200);
    root.delete(&ann).await.expect(200);
    assert_eq!(root.delete(&bob).await.code(), 403);
    // An organization that goes takes its owners along.
    root.delete("/api/v1/namespaces/organization-acme").await.expect(200);
    root.delete(&bob).await.expect(200);
}

#[tokio::test]
async fn owners_who_remove_each_other_at_once_do_not_both_succeed() {
    let (_world, root) = platform().await;
    for i in 0..10 {
        let name = format!("acme{i}");
        root.post(ORGANIZATIONS, &organization(&name)).await.expect(201);
        for user in ["ann", "bob"] {
            root.post(&members(&name), &membership(user, &name, user, &["owner"]))
                .await
                .expect(201);
        }
        let (ann, bob) = (format!("{}/ann", members(&name)), format!("{}/bob", members(&name)));
        let (one, other) = tokio::join!(root.delete(&ann), root.delete(&bob));
        let mut codes = [one.code(), other.code()];
        codes.sort_unstable();
        assert_eq!(codes, [200, 403], "{} {}", one.json(), other.json());
    }
}
