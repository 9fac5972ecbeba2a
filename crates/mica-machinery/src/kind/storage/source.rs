//! Where a volume's data is: the sources that pods' volumes and persistent volumes name.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{claim, source_file, validate_driver_name};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{entries, invalid_each, is_set, present};
use crate::kind::core::resource::quantity;
use crate::kind::workload::number;
use crate::{names, object};

/// Who names the source.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Holder<'a> {
    /// A pod, or a template of pods, with the volume's name.
    Pod(&'a str),
    /// A persistent volume of this name.
    Volume(&'a str),
}

/// A source: its field, what its errors call it, what a second source is called, and the fields that it needs.
struct Source {
    field: &'static str,
    path: &'static str,
    second: &'static str,
    required: &'static [&'static str],
}

const fn source(field: &'static str, required: &'static [&'static str]) -> Source {
    Source {
        field,
        path: field,
        second: field,
        required,
    }
}

const GCE: Source = Source {
    path: "persistentDisk",
    ..source("gcePersistentDisk", &["pdName"])
};
const CEPH: Source = Source {
    second: "cephFS",
    ..source("cephfs", &["monitors"])
};

/// In upstream's order, which decides who is the second.
const OF_PODS: &[Source] = &[
    source("emptyDir", &[]),
    source("hostPath", &["path"]),
    source("gitRepo", &["repository"]),
    GCE,
    source("awsElasticBlockStore", &["volumeID"]),
    source("secret", &["secretName"]),
    source("nfs", &["server", "path"]),
    source("iscsi", &["targetPortal"]),
    source("glusterfs", &["endpoints", "path"]),
    source("flocker", &[]),
    source("persistentVolumeClaim", &["claimName"]),
    source("rbd", &["monitors", "image"]),
    source("cinder", &["volumeID"]),
    CEPH,
    source("quobyte", &[]),
    Source {
        second: "downwarAPI",
        ..source("downwardAPI", &[])
    },
    source("fc", &[]),
    source("flexVolume", &["driver"]),
    source("configMap", &["name"]),
    source("azureFile", &["secretName", "shareName"]),
    source("vsphereVolume", &["volumePath"]),
    source("photonPersistentDisk", &["pdID"]),
    source("portworxVolume", &["volumeID"]),
    source("azureDisk", &["diskName", "diskURI"]),
    source("storageos", &[]),
    source("projected", &[]),
    source("scaleIO", &["gateway", "system", "volumeName"]),
    source("csi", &[]),
    source("ephemeral", &["volumeClaimTemplate"]),
    source("image", &[]),
];

const OF_VOLUMES: &[Source] = &[
    source("hostPath", &["path"]),
    GCE,
    source("awsElasticBlockStore", &["volumeID"]),
    source("glusterfs", &["endpoints", "path"]),
    source("flocker", &[]),
    source("nfs", &["server", "path"]),
    source("rbd", &["monitors", "image"]),
    source("quobyte", &[]),
    CEPH,
    source("iscsi", &["targetPortal"]),
    source("cinder", &["volumeID"]),
    source("fc", &[]),
    source("flexVolume", &["driver"]),
    source("azureFile", &["secretName", "shareName"]),
    source("vsphereVolume", &["volumePath"]),
    source("photonPersistentDisk", &["pdID"]),
    source("portworxVolume", &["volumeID"]),
    source("azureDisk", &["diskName", "diskURI"]),
    source("scaleIO", &["gateway", "system", "volumeName"]),
    source("local", &["path"]),
    source("storageos", &[]),
    source("csi", &[]),
];

/// Fields of a persistent volume's spec that are its source.
pub fn is_source(field: &str) -> bool {
    OF_VOLUMES.iter().any(|source| source.field == field)
}

/// Exactly one source, and what it needs.
pub fn validate(held: &Value, holder: Holder<'_>, path: &Path, errors: &mut ErrorList) {
    let sources = match holder {
        Holder::Pod(_) => OF_PODS,
        Holder::Volume(_) => OF_VOLUMES,
    };
    let mut found = 0;
    for source in sources {
        let Some(value) = present(held, &[source.field]) else {
            continue;
        };
        found += 1;
        if found > 1 {
            let detail = "may not specify more than 1 volume type";
            errors.push(Error::forbidden(&path.child(source.second), detail));
            continue;
        }
        let path = path.child(source.path);
        for field in source.required {
            if value.get(*field).is_none_or(crate::kind::check::is_empty) {
                errors.push(Error::required(&path.child(field), ""));
            }
        }
        validate_one(source.field, value, holder, &path, errors);
    }
    if found == 0 {
        errors.push(Error::required(path, "must specify a volume type"));
    }
}

fn validate_one(field: &str, value: &Value, holder: Holder<'_>, path: &Path, errors: &mut ErrorList) {
    let text = |name| object::string(value, &[name]);
    match field {
        "emptyDir" if present(value, &["sizeLimit"]).is_some_and(|limit| quantity(limit).signum() < 0) => {
            let detail = "SizeLimit field must be a valid resource quantity";
            errors.push(Error::forbidden(&path.child("sizeLimit"), detail));
        }
        "hostPath" => {
            source_file::no_backsteps(text("path"), &path.child("path"), errors);
            source_file::validate_host_path_type(value, &path.child("type"), errors);
        }
        "local" => source_file::no_backsteps(text("path"), &path.child("path"), errors),
        "gitRepo" => source_file::local_descending(text("directory"), &path.child("directory"), errors),
        "gcePersistentDisk" | "awsElasticBlockStore" => partition(value, path, errors),
        "secret" | "configMap" => source_file::validate_keys(value, path, errors),
        "nfs" if !text("path").starts_with('/') => {
            let detail = "must be an absolute path";
            errors.push(Error::invalid(&path.child("path"), text("path"), detail));
        }
        "iscsi" => validate_iscsi(value, holder, path, errors),
        "glusterfs" => validate_glusterfs(value, path, errors),
        "flocker" => validate_flocker(value, path, errors),
        "cinder" => {
            if let Some(secret) = present(value, &["secretRef"]) {
                validate_secret(secret, holder, &path.child("secretRef"), errors);
            }
        }
        "quobyte" => validate_quobyte(value, path, errors),
        "downwardAPI" => source_file::validate_downward(value, path, errors),
        "fc" => validate_fc(value, path, errors),
        "flexVolume" => validate_flex(value, path, errors),
        "azureFile" if is_set(value, &["secretNamespace"]) && text("secretNamespace").is_empty() => {
            errors.push(Error::required(&path.child("secretNamespace"), ""));
        }
        "azureDisk" => validate_azure_disk(value, path, errors),
        "storageos" => validate_storageos(value, holder, path, errors),
        "projected" => source_file::validate_projected(value, path, errors),
        "csi" => validate_csi(value, holder, path, errors),
        "ephemeral" => {
            if let Some(spec) = object::get(value, &["volumeClaimTemplate", "spec"]) {
                claim::validate_spec(spec, &path.child("volumeClaimTemplate").child("spec"), errors);
            }
        }
        "image" => {
            let policies = ["Always", "IfNotPresent", "Never"];
            crate::kind::check::one_of(&path.child("pullPolicy"), text("pullPolicy"), &policies, errors);
        }
        _ => {}
    }
}

fn partition(value: &Value, path: &Path, errors: &mut ErrorList) {
    let found = number(value, &["partition"]);
    if !(0..=255).contains(&found) {
        let detail = names::inclusive_range_error(0, 255);
        errors.push(Error::invalid(&path.child("partition"), found, detail));
    }
}

/// A secret by name, and for persistent volumes by namespace.
fn validate_secret(secret: &Value, holder: Holder<'_>, path: &Path, errors: &mut ErrorList) {
    let needed: &[&str] = match holder {
        Holder::Pod(_) => &["name"],
        Holder::Volume(_) => &["name", "namespace"],
    };
    for field in needed {
        if object::string(secret, &[field]).is_empty() {
            errors.push(Error::required(&path.child(field), ""));
        }
    }
}

static ISCSI_NAMES: LazyLock<Regex> = LazyLock::new(|| {
    let names = r"iqn\.\d{4}-\d{2}\.([[:alnum:]\-.]+)(:[^,;*&$|\s]+)$|^eui.[[:alnum:]]{16}$|^naa.[[:alnum:]]{32}$";
    Regex::new(names).expect("a valid pattern")
});

fn is_iscsi_name(name: &str) -> bool {
    ISCSI_NAMES.is_match(name)
}

fn validate_iscsi(value: &Value, holder: Holder<'_>, path: &Path, errors: &mut ErrorList) {
    const MAX_PORTAL: usize = 64;
    let text = |name| object::string(value, &[name]);
    let (volume, start) = match holder {
        Holder::Pod(name) => (name, "must be valid format starting with iqn, eui, or naa"),
        Holder::Volume(name) => (name, "must be valid format"),
    };
    let portal = text("targetPortal");
    if is_set(value, &["initiatorName"]) && volume.len() + 1 + portal.len() > MAX_PORTAL {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        errors.push(Error::invalid(&path.child("targetportal"), portal, detail));
    }
    match text("iqn") {
        "" => errors.push(Error::required(&path.child("iqn"), "")),
        name => validate_iscsi_name(name, start, &path.child("iqn"), errors),
    }
    let lun = number(value, &["lun"]);
    if !(0..=255).contains(&lun) {
        let detail = names::inclusive_range_error(0, 255);
        errors.push(Error::invalid(&path.child("lun"), lun, detail));
    }
    let asks = ["chapAuthDiscovery", "chapAuthSession"]
        .iter()
        .any(|field| value.get(*field) == Some(&Value::Bool(true)));
    match present(value, &["secretRef"]) {
        None if asks => errors.push(Error::required(&path.child("secretRef"), "")),
        Some(secret) if holder != Holder::Pod(volume) && object::string(secret, &["name"]).is_empty() => {
            errors.push(Error::required(&path.child("secretRef").child("name"), ""));
        }
        _ => {}
    }
    if let Some(name) = present(value, &["initiatorName"]).and_then(Value::as_str) {
        validate_iscsi_name(name, start, &path.child("initiatorname"), errors);
    }
}

fn validate_iscsi_name(name: &str, start: &str, path: &Path, errors: &mut ErrorList) {
    if !["iqn", "eui", "naa"].iter().any(|prefix| name.starts_with(prefix)) {
        errors.push(Error::invalid(path, name, start));
    } else if !is_iscsi_name(name) {
        errors.push(Error::invalid(path, name, "must be valid format"));
    }
}

fn validate_glusterfs(value: &Value, path: &Path, errors: &mut ErrorList) {
    let Some(namespace) = present(value, &["endpointsNamespace"]).and_then(Value::as_str) else {
        return;
    };
    let path = path.child("endpointsNamespace");
    if namespace.is_empty() {
        let detail = "if the endpointnamespace is set, it must be a valid namespace name";
        errors.push(Error::invalid(&path, "", detail));
    } else {
        errors.extend(invalid_each(&path, namespace, names::dns1123_label(namespace)));
    }
}

fn validate_flocker(value: &Value, path: &Path, errors: &mut ErrorList) {
    let (name, uuid) = (
        object::string(value, &["datasetName"]),
        object::string(value, &["datasetUUID"]),
    );
    if name.is_empty() && uuid.is_empty() {
        let detail = "one of datasetName and datasetUUID is required";
        errors.push(Error::required(path, detail));
    }
    if !name.is_empty() && !uuid.is_empty() {
        let detail = "datasetName and datasetUUID can not be specified simultaneously";
        errors.push(Error::invalid(path, "resource", detail));
    }
    if name.contains('/') {
        errors.push(Error::invalid(&path.child("datasetName"), name, "must not contain '/'"));
    }
}

fn validate_quobyte(value: &Value, path: &Path, errors: &mut ErrorList) {
    const MAX_TENANT: usize = 64;
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let text = |name| object::string(value, &[name]);
    let registry = text("registry");
    if registry.is_empty() {
        errors.push(Error::required(&path.child("registry"), PAIRS));
    } else if text("tenant").len() > MAX_TENANT {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(Error::required(&path.child("tenant"), detail));
    } else {
        let bad = registry.split(',').filter(|pair| pair.matches(':').count() != 1);
        errors.extend(bad.map(|_| Error::invalid(&path.child("registry"), registry, PAIRS)));
    }
    if text("volume").is_empty() {
        errors.push(Error::required(&path.child("volume"), ""));
    }
}

fn validate_fc(value: &Value, path: &Path, errors: &mut ErrorList) {
    let (names_, ids) = (object::list(value, &["targetWWNs"]), object::list(value, &["wwids"]));
    let at = path.child("targetWWNs");
    if names_.is_empty() && ids.is_empty() {
        let detail = "must specify either targetWWNs or wwids, but not both";
        errors.push(Error::required(&at, detail));
    }
    if !names_.is_empty() && !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.push(Error::invalid(&at, names_.to_vec(), detail));
    }
    if !names_.is_empty() {
        match object::int(value, &["lun"]) {
            None => {
                let detail = "lun is required if targetWWNs is specified";
                errors.push(Error::required(&path.child("lun"), detail));
            }
            Some(lun) if !(0..=255).contains(&lun) => {
                let detail = names::inclusive_range_error(0, 255);
                errors.push(Error::invalid(&path.child("lun"), lun, detail));
            }
            Some(_) => {}
        }
    }
}

fn validate_flex(value: &Value, path: &Path, errors: &mut ErrorList) {
    for (key, _) in entries(value, &["options"]) {
        let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
        let domain = format!(".{}", domain.to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.push(Error::invalid(&path.child("options").key(key), key, detail));
        }
    }
}

fn validate_azure_disk(value: &Value, path: &Path, errors: &mut ErrorList) {
    const CACHING: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
    const KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let text = |name| object::string(value, &[name]);
    for (field, known) in [("cachingMode", CACHING), ("kind", KINDS)] {
        if is_set(value, &[field]) && !known.contains(&text(field)) {
            errors.push(Error::not_supported(&path.child(field), text(field), &known));
        }
    }
    if is_set(value, &["kind"]) {
        let (start, wanted) = match text("kind") {
            "Managed" => ("/subscriptions/", MANAGED),
            _ => ("https://", BLOB),
        };
        if !text("diskURI").starts_with(start) {
            errors.push(Error::not_supported(&path.child("diskURI"), text("diskURI"), &[wanted]));
        }
    }
}

fn validate_storageos(value: &Value, holder: Holder<'_>, path: &Path, errors: &mut ErrorList) {
    let text = |name| object::string(value, &[name]);
    if text("volumeName").is_empty() {
        errors.push(Error::required(&path.child("volumeName"), ""));
    }
    for field in ["volumeName", "volumeNamespace"] {
        if !text(field).is_empty() {
            let texts = names::dns1123_label(text(field));
            errors.extend(invalid_each(&path.child(field), text(field), texts));
        }
    }
    if let Some(secret) = present(value, &["secretRef"]) {
        validate_secret(secret, holder, &path.child("secretRef"), errors);
    }
}

fn validate_csi(value: &Value, holder: Holder<'_>, path: &Path, errors: &mut ErrorList) {
    validate_driver_name(object::string(value, &["driver"]), &path.child("driver"), errors);
    if let Holder::Pod(_) = holder {
        if let Some(secret) = present(value, &["nodePublishSecretRef"]) {
            match object::string(secret, &["name"]) {
                "" => errors.push(Error::required(&path.child("nodePublishSecretRef").child("name"), "")),
                name => errors.extend(invalid_each(&path.child("name"), name, names::dns1123_subdomain(name))),
            }
        }
        return;
    }
    if object::string(value, &["volumeHandle"]).is_empty() {
        errors.push(Error::required(&path.child("volumeHandle"), ""));
    }
    for field in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let Some(secret) = present(value, &[field]) else {
            continue;
        };
        let path = path.child(field);
        match object::string(secret, &["name"]) {
            "" => errors.push(Error::required(&path.child("name"), "")),
            name => errors.extend(invalid_each(&path.child("name"), name, names::dns1123_subdomain(name))),
        }
        match object::string(secret, &["namespace"]) {
            "" => errors.push(Error::required(&path.child("namespace"), "")),
            name => errors.extend(invalid_each(&path.child("namespace"), name, names::dns1123_label(name))),
        }
    }
}
