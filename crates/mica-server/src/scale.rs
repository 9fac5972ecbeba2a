//! The subresource `scale`: how many replicas an object wants and has, one mechanism for built-in and custom kinds.
//!
//! Clients read, put, patch and apply a Scale; what is written is its object, through [`Registry::patch`], so that races,
//! fences, validation and generations are those of every write. Managed fields are recorded in the Scale and brought back
//! (`managed::managers_with_scale`). Built-in and custom kinds differ only where clients can tell.
//!
//! [`Registry::patch`]: crate::registry::Registry::patch

use std::sync::LazyLock;

use http::header::CONTENT_TYPE;
use http::{Method, Response, StatusCode};
use mica_machinery::kind::autoscaling::scale::{self, Replicas, ScaleError, Scaled, Shown, UNSET};
use mica_machinery::managed::{self, OneVersion, ReplicasPaths, Set};
use mica_machinery::schema::scale::Scale;
use mica_machinery::{codec, object};
use serde_json::Value;

use crate::authz::{Grant, Target};
use crate::custom::Definition;
use crate::encode::{Encoder, Media};
use crate::error::ApiError;
use crate::http::Body;
use crate::negotiate::{self, PatchType, Route};
use crate::options::{WriteOptions, WriteUse};
use crate::registry::{self, Managers, PatchRequest, Patched, View, served_value};
use crate::scheme::{Form, Served};
use crate::serve::{Call, body, object as objects, resource, respond, warn};
use crate::stored::Stored;

static BUILT_IN: LazyLock<Served> = LazyLock::new(|| Served::new(&scale::SCALE));
static CUSTOM: LazyLock<Served> = LazyLock::new(|| Served::new(&scale::CUSTOM_SCALE));

/// What upstream says of every body that it cannot read as the Scale of a custom object.
const UNREADABLE: &str = "no kind is registered for the type v1.Scale in scheme \"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781\"";

/// The versions that entries of built-in workloads may be in.
const WORKLOAD_VERSIONS: [&str; 3] = ["apps/v1beta1", "apps/v1beta2", "apps/v1"];

pub(crate) async fn answer(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let scaling = Scaling::of(&grant.target)?;
    match call.parts.method {
        Method::GET | Method::HEAD => scaling.get(call, grant).await,
        Method::PUT => scaling.put(call, grant).await,
        Method::PATCH => scaling.patch(call, grant).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// One object's scale.
struct Scaling<'a> {
    target: &'a Target,
    scaled: Scaled<'a>,
    /// The Scale as a resource of its own, which decodes, merges and prints it.
    served: &'static Served,
    paths: ReplicasPaths,
}

/// A Scale that a client wants, and what is to be warned of.
struct Wanted {
    scale: Value,
    warnings: Vec<String>,
}

type Change<'a> = &'a (dyn Fn(&Value) -> Result<Wanted, ApiError> + Send + Sync);

impl<'a> Scaling<'a> {
    fn of(target: &'a Target) -> Result<Self, ApiError> {
        let parent = &target.served;
        Ok(match parent.form() {
            Form::BuiltIn { row, .. } => {
                let (scaled, versions) = if row.group.is_empty() {
                    (Scaled::Controller, &["v1"][..])
                } else {
                    (Scaled::Workload, &WORKLOAD_VERSIONS[..])
                };
                let paths = versions.iter().fold(ReplicasPaths::default(), |paths, version| {
                    paths.with(version, Some(&scale::REPLICAS))
                });
                Self {
                    target,
                    scaled,
                    served: &BUILT_IN,
                    paths,
                }
            }
            Form::Custom(kind) => Self {
                target,
                scaled: Scaled::Custom(kind.scale.as_ref().ok_or_else(ApiError::no_such_resource)?),
                served: &CUSTOM,
                paths: custom_paths(target),
            },
        })
    }

    async fn get(&self, call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
        let media = resource::checked_media(call, Route::Object, self.served)?;
        let version = call.query.text("resourceVersion");
        let stored = call.server.registry.get(grant, version).await?;
        let shown = self.shown(&served_value(&self.target.served, &stored)?)?;
        if let (Replicas::Missing, Scaled::Custom(scale)) = (shown.replicas, &self.scaled) {
            let path = mica_machinery::field::quote(&scale.spec_replicas);
            return Err(ApiError::internal(&format!(
                "the spec replicas field {path} does not exist"
            )));
        }
        self.respond(media, shown.scale)
    }

    async fn put(&self, call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
        let options = WriteOptions::read(&call.query, WriteUse::Update)?;
        let media = resource::checked_media(call, Route::Object, self.served)?;
        let format = negotiate::body_format(call.header(&CONTENT_TYPE))?;
        let wanted = objects::wanted(self.served);
        let read =
            body::read(format, &call.body, wanted, options.field_validation).map_err(|error| self.unread(error))?;
        let warnings = read.warnings;
        let mut sent = read.object;
        self.check_identity(&mut sent)
            .map_err(|error| error.warned(&warnings))?;
        let manager = resource::manager(call, &options.field_manager);
        let change = |old: &Value| {
            self.check_put_uid(&sent, old)?;
            let mut scale = sent.clone();
            self.record(old, &mut scale, read.managers, &manager);
            Ok(Wanted {
                scale,
                warnings: Vec::new(),
            })
        };
        let written = self.write(call, grant, options, &change).await;
        let (stored, more) = written.map_err(|error| error.warned(&warnings))?;
        self.written(media, &stored, &[warnings, more].concat())
    }

    async fn patch(&self, call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
        let patch_type = negotiate::patch_type(call.header(&CONTENT_TYPE), self.route())?;
        if patch_type == PatchType::Apply {
            return self.apply(call, grant).await;
        }
        let options = WriteOptions::read(&call.query, WriteUse::Patch)?;
        let media = resource::checked_media(call, Route::Object, self.served)?;
        let validation = options.field_validation;
        let manager = resource::manager(call, &options.field_manager);
        let change = |old: &Value| {
            let mut document = Vec::new();
            self.served.encode(old, &mut document);
            let patched = objects::patched(self.served, patch_type, &document, &call.body, validation)?;
            let mut scale = patched.object;
            self.record(old, &mut scale, managers_asked(patched.managers), &manager);
            self.check_identity(&mut scale)
                .map_err(|error| error.warned(&patched.warnings))?;
            Ok(Wanted {
                scale,
                warnings: patched.warnings,
            })
        };
        let (stored, warnings) = self.write(call, grant, options, &change).await?;
        self.written(media, &stored, &warnings)
    }

    async fn apply(&self, call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
        let options = WriteOptions::read(&call.query, WriteUse::Apply)?;
        let media = resource::checked_media(call, Route::Object, self.served)?;
        let (applied, warnings) = objects::applied(call, options.field_validation)?;
        let manager = options.field_manager.clone();
        let change = |old: &Value| {
            let mut scale = self.merged(old, &applied, objects::on_conflict(call), &manager)?;
            self.check_identity(&mut scale)?;
            Ok(Wanted {
                scale,
                warnings: Vec::new(),
            })
        };
        let written = self.write(call, grant, options, &change).await;
        let (stored, more) = written.map_err(|error| error.warned(&warnings))?;
        self.written(media, &stored, &[warnings, more].concat())
    }

    /// Writes the object whose Scale `change` changes, and returns it with what is to be warned of.
    async fn write(
        &self,
        call: &Call<'_>,
        grant: &Grant,
        options: WriteOptions,
        change: Change<'_>,
    ) -> Result<(Stored, Vec<String>), ApiError> {
        let patch = |document: &[u8]| -> Result<Patched, ApiError> {
            let parent: Value = serde_json::from_slice(document)
                .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
            let old = self.old_scale(&parent)?;
            let wanted = change(&old)?;
            let object = self
                .with_scale(parent, &wanted.scale)
                .map_err(|error| error.warned(&wanted.warnings))?;
            Ok(Patched {
                object,
                managers: Managers::Applied,
                warnings: wanted.warnings,
            })
        };
        let request = PatchRequest {
            patch: &patch,
            manager: resource::manager(call, &options.field_manager),
            options,
            view: Some(self),
        };
        let written = call.server.registry.patch(grant, request).await?;
        Ok((written.stored, written.warnings))
    }

    /// The Scale of an object as writes see it: with its managers, and with a number where there is none.
    fn old_scale(&self, parent: &Value) -> Result<Value, ApiError> {
        let Shown { mut scale, replicas } = self.shown(parent)?;
        if replicas == Replicas::Missing {
            object::set(&mut scale, &scale::REPLICAS, UNSET);
        }
        let entries = object::list(parent, &["metadata", "managedFields"]);
        if let Some(list) = managed::managers_of_scale(entries, &self.paths).map_err(|error| unmanaged(&error))? {
            object::set(&mut scale, &["metadata", "managedFields"], list);
        }
        Ok(scale)
    }

    /// The object that has this Scale.
    fn with_scale(&self, mut parent: Value, scale: &Value) -> Result<Value, ApiError> {
        let replicas = object::int(scale, &scale::REPLICAS).unwrap_or(0);
        let version = object::string(scale, &["metadata", "resourceVersion"]);
        if let Scaled::Custom(paths) = &self.scaled {
            check_given(paths, replicas)?;
        } else {
            let errors = scale::errors(scale);
            if !errors.is_empty() {
                return Err(ApiError::invalid(
                    "autoscaling",
                    "Scale",
                    object::name(&parent),
                    &errors,
                ));
            }
            self.check_uid(scale, &parent)?;
            // Without a version this overwrites whatever is there.
            object::remove(&mut parent, &["metadata", "resourceVersion"]);
        }
        self.scaled
            .set_replicas(&mut parent, replicas)
            .map_err(ApiError::internal_text)?;
        if !version.is_empty() {
            object::set(&mut parent, &["metadata", "resourceVersion"], version);
        }
        let (before, after) = (managers(&parent), managers(scale));
        let api_version = &self.target.served.api_version;
        match managed::managers_with_scale(before, after, api_version, &self.paths)
            .map_err(|error| unmanaged(&error))?
        {
            Some(list) => object::set(&mut parent, &["metadata", "managedFields"], list),
            None => drop(object::remove(&mut parent, &["metadata", "managedFields"])),
        }
        Ok(parent)
    }

    /// Records who changed the Scale.
    fn record(&self, old: &Value, new: &mut Value, asked: managed::Request, manager: &str) {
        self.with_write(manager, |write| managed::update(Some(old), new, asked, write));
    }

    /// The Scale that applying gives.
    fn merged(
        &self,
        old: &Value,
        applied: &Value,
        on_conflict: managed::OnConflict,
        manager: &str,
    ) -> Result<Value, ApiError> {
        let Form::BuiltIn { ty, .. } = self.served.form() else {
            return Err(ApiError::internal("a Scale is a built-in kind"));
        };
        let merged = self.with_write(manager, |write| {
            let object = managed::apply(Some(old), applied, "Scale", on_conflict, write)?;
            let decoded = codec::decode_value(*ty, &object)
                .map_err(|error| managed::undecodable(&object, &format!("error decoding from json: {error}"), write))?;
            Ok(decoded.value)
        });
        merged.map_err(registry::refuse)
    }

    fn with_write<T>(&self, manager: &str, use_: impl FnOnce(&managed::Write<'_>) -> T) -> T {
        use_(&managed::Write {
            manager,
            api_version: &self.served.api_version,
            subresource: "scale",
            time: jiff::Timestamp::now(),
            schema: self.served.merge_type(),
            reset: &Set::new(),
            versions: &OneVersion,
        })
    }

    /// A Scale must say that it is its object's.
    fn check_identity(&self, scale: &mut Value) -> Result<(), ApiError> {
        registry::settle_metadata(self.target, scale)?;
        registry::check_name(self.target, scale)
    }

    /// A uid that was put is a precondition, as in every object.
    fn check_put_uid(&self, sent: &Value, old: &Value) -> Result<(), ApiError> {
        let uid = |of| object::string(of, &["metadata", "uid"]);
        match (uid(sent), uid(old)) {
            ("", _) => Ok(()),
            (sent, actual) if sent == actual => Ok(()),
            (sent, actual) => Err(registry::uid_conflict(
                self.target,
                &self.target.served.name,
                sent,
                actual,
            )),
        }
    }

    /// One that was patched is a precondition of built-in kinds' Scales alone, with a text of its own.
    fn check_uid(&self, scale: &Value, parent: &Value) -> Result<(), ApiError> {
        let uid = |of| object::string(of, &["metadata", "uid"]);
        let (sent, actual) = (uid(scale), uid(parent));
        if sent.is_empty() || sent == actual {
            return Ok(());
        }
        let why = format!("Precondition failed: UID in precondition: {sent}, UID in object meta: {actual}");
        let served = &self.target.served;
        let resource = format!("{}/scale", served.plural());
        let name = object::name(parent);
        Err(ApiError::precondition_failed(served.group(), &resource, name, &why))
    }

    fn shown(&self, parent: &Value) -> Result<Shown, ApiError> {
        self.scaled.shown(parent).map_err(|error| match error {
            ScaleError::WrongType(error) => ApiError::internal_text(error.to_string()),
            ScaleError::Selector(error) => ApiError::bad_request(error.to_string()),
        })
    }

    /// Custom resources have no router.
    fn route(&self) -> Route {
        match self.scaled {
            Scaled::Custom(_) => Route::None,
            Scaled::Workload | Scaled::Controller => Route::Object,
        }
    }

    fn unread(&self, error: ApiError) -> ApiError {
        match self.scaled {
            Scaled::Custom(_) => ApiError::bad_request(UNREADABLE),
            Scaled::Workload | Scaled::Controller => error,
        }
    }

    fn written(&self, media: Media, stored: &Stored, warnings: &[String]) -> Result<Response<Body>, ApiError> {
        let shown = self.shown(&served_value(&self.target.served, stored)?)?;
        let mut response = self.respond(media, shown.scale)?;
        warn(&mut response, warnings);
        Ok(response)
    }

    fn respond(&self, media: Media, scale: Value) -> Result<Response<Body>, ApiError> {
        let bytes = Encoder::new(self.served, media).value(scale)?;
        Ok(respond(
            StatusCode::OK,
            media.output.format.media_type(),
            Body::full(bytes),
        ))
    }
}

/// Admission sees the Scale, and what it makes of it is the object's.
impl View for Scaling<'_> {
    fn served(&self) -> &Served {
        self.served
    }

    fn part(&self, object: &Value) -> Result<Value, ApiError> {
        self.old_scale(object)
    }

    fn with_part(&self, object: Value, part: &Value) -> Result<Value, ApiError> {
        self.with_scale(object, part)
    }
}

/// Where each version of a custom kind keeps its replicas.
fn custom_paths(target: &Target) -> ReplicasPaths {
    let versions = target.definition.iter().flat_map(Definition::versions);
    versions.fold(ReplicasPaths::default(), |paths, served| {
        let scale = served.custom_kind().and_then(|kind| kind.scale.as_ref());
        let names = scale.map(|scale| Scaled::Custom(scale).path());
        paths.with(&served.api_version, names.as_deref())
    })
}

/// A custom object that has no replicas gets some from every change of its Scale.
fn check_given(paths: &Scale, replicas: i64) -> Result<(), ApiError> {
    if replicas != UNSET {
        return Ok(());
    }
    let path = mica_machinery::field::quote(&paths.spec_replicas);
    Err(ApiError::bad_request(format!(
        "the spec replicas field {path} cannot be empty"
    )))
}

fn managers(object: &Value) -> &[Value] {
    object::list(object, &["metadata", "managedFields"])
}

fn managers_asked(managers: Managers) -> managed::Request {
    match managers {
        Managers::Recorded(asked) => asked,
        Managers::Applied => managed::Request::Usual,
    }
}

fn unmanaged(error: &managed::EntriesError) -> ApiError {
    ApiError::internal_text(error.to_string())
}
