//! The messages of `openapi.v3`.

use super::{Choices, EXTERNAL_DOCS, Form, Look, Message, SECURITY_REQUIREMENT};

pub(super) static DOCUMENT: Message = Message {
    fields: &[
        ("openapi", 1, Form::Text),
        ("info", 2, Form::Message(&INFO)),
        ("paths", 4, Form::Message(&PATHS)),
        ("components", 5, Form::Message(&COMPONENTS)),
        ("security", 6, Form::List(&Form::Message(&SECURITY_REQUIREMENT))),
    ],
    rest: None,
    extensions: 9,
};

static INFO: Message = Message {
    fields: &[
        ("title", 1, Form::Text),
        ("description", 2, Form::Text),
        ("version", 6, Form::Text),
    ],
    rest: None,
    extensions: 7,
};

static PATHS: Message = Message {
    fields: &[],
    rest: Some((1, Form::Message(&PATH_ITEM))),
    extensions: 0,
};

static COMPONENTS: Message = Message {
    fields: &[
        ("schemas", 1, Form::Message(&SCHEMAS)),
        ("securitySchemes", 7, Form::Message(&SECURITY_SCHEMES)),
    ],
    rest: None,
    extensions: 10,
};

static SCHEMAS: Message = Message {
    fields: &[],
    rest: Some((1, Form::OneOf(SCHEMA_OR_REFERENCE))),
    extensions: 0,
};

static SECURITY_SCHEMES: Message = Message {
    fields: &[],
    rest: Some((1, Form::OneOf(SECURITY_SCHEME_OR_REFERENCE))),
    extensions: 0,
};

static SECURITY_SCHEME_OR_REFERENCE: Choices = &[
    (Look::Reference, 2, Form::Message(&REFERENCE)),
    (Look::Object, 1, Form::Message(&SECURITY_SCHEME)),
];

static SECURITY_SCHEME: Message = Message {
    fields: &[
        ("type", 1, Form::Text),
        ("description", 2, Form::Text),
        ("name", 3, Form::Text),
        ("in", 4, Form::Text),
        ("scheme", 5, Form::Text),
        ("bearerFormat", 6, Form::Text),
    ],
    rest: None,
    extensions: 9,
};

static REFERENCE: Message = Message {
    fields: &[
        ("$ref", 1, Form::Text),
        ("summary", 2, Form::Text),
        ("description", 3, Form::Text),
    ],
    rest: None,
    extensions: 0,
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("summary", 2, Form::Text),
        ("description", 3, Form::Text),
        ("get", 4, Form::Message(&OPERATION)),
        ("put", 5, Form::Message(&OPERATION)),
        ("post", 6, Form::Message(&OPERATION)),
        ("delete", 7, Form::Message(&OPERATION)),
        ("options", 8, Form::Message(&OPERATION)),
        ("head", 9, Form::Message(&OPERATION)),
        ("patch", 10, Form::Message(&OPERATION)),
        ("parameters", 13, Form::List(&Form::OneOf(PARAMETER_OR_REFERENCE))),
    ],
    rest: None,
    extensions: 14,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Form::List(&Form::Text)),
        ("summary", 2, Form::Text),
        ("description", 3, Form::Text),
        ("operationId", 5, Form::Text),
        ("parameters", 6, Form::List(&Form::OneOf(PARAMETER_OR_REFERENCE))),
        ("requestBody", 7, Form::OneOf(REQUEST_BODY_OR_REFERENCE)),
        ("responses", 8, Form::Message(&RESPONSES)),
        ("deprecated", 10, Form::Flag),
    ],
    rest: None,
    extensions: 13,
};

static PARAMETER_OR_REFERENCE: Choices = &[
    (Look::Reference, 2, Form::Message(&REFERENCE)),
    (Look::Object, 1, Form::Message(&PARAMETER)),
];

static PARAMETER: Message = Message {
    fields: &[
        ("name", 1, Form::Text),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("required", 4, Form::Flag),
        ("deprecated", 5, Form::Flag),
        ("allowEmptyValue", 6, Form::Flag),
        ("style", 7, Form::Text),
        ("explode", 8, Form::Flag),
        ("schema", 10, Form::OneOf(SCHEMA_OR_REFERENCE)),
    ],
    rest: None,
    extensions: 14,
};

static REQUEST_BODY_OR_REFERENCE: Choices = &[
    (Look::Reference, 2, Form::Message(&REFERENCE)),
    (Look::Object, 1, Form::Message(&REQUEST_BODY)),
];

static REQUEST_BODY: Message = Message {
    fields: &[
        ("description", 1, Form::Text),
        ("content", 2, Form::Message(&MEDIA_TYPES)),
        ("required", 3, Form::Flag),
    ],
    rest: None,
    extensions: 4,
};

static RESPONSES: Message = Message {
    fields: &[("default", 1, Form::OneOf(RESPONSE_OR_REFERENCE))],
    rest: Some((2, Form::OneOf(RESPONSE_OR_REFERENCE))),
    extensions: 0,
};

static RESPONSE_OR_REFERENCE: Choices = &[
    (Look::Reference, 2, Form::Message(&REFERENCE)),
    (Look::Object, 1, Form::Message(&RESPONSE)),
];

static RESPONSE: Message = Message {
    fields: &[
        ("description", 1, Form::Text),
        ("content", 3, Form::Message(&MEDIA_TYPES)),
    ],
    rest: None,
    extensions: 5,
};

static MEDIA_TYPES: Message = Message {
    fields: &[],
    rest: Some((1, Form::Message(&MEDIA_TYPE))),
    extensions: 0,
};

static MEDIA_TYPE: Message = Message {
    fields: &[
        ("schema", 1, Form::OneOf(SCHEMA_OR_REFERENCE)),
        ("example", 2, Form::Any),
    ],
    rest: None,
    extensions: 5,
};

static SCHEMA_OR_REFERENCE: Choices = &[
    (Look::Reference, 2, Form::Message(&REFERENCE)),
    (Look::Object, 1, Form::Message(&SCHEMA)),
];

static PROPERTIES: Message = Message {
    fields: &[],
    rest: Some((1, Form::OneOf(SCHEMA_OR_REFERENCE))),
    extensions: 0,
};

static SCHEMA: Message = Message {
    fields: &[
        ("nullable", 1, Form::Flag),
        ("readOnly", 3, Form::Flag),
        ("writeOnly", 4, Form::Flag),
        ("externalDocs", 6, Form::Message(&EXTERNAL_DOCS)),
        ("example", 7, Form::Any),
        ("deprecated", 8, Form::Flag),
        ("title", 9, Form::Text),
        ("multipleOf", 10, Form::Number),
        ("maximum", 11, Form::Number),
        ("exclusiveMaximum", 12, Form::Flag),
        ("minimum", 13, Form::Number),
        ("exclusiveMinimum", 14, Form::Flag),
        ("maxLength", 15, Form::Integer),
        ("minLength", 16, Form::Integer),
        ("pattern", 17, Form::Text),
        ("maxItems", 18, Form::Integer),
        ("minItems", 19, Form::Integer),
        ("uniqueItems", 20, Form::Flag),
        ("maxProperties", 21, Form::Integer),
        ("minProperties", 22, Form::Integer),
        ("required", 23, Form::List(&Form::Text)),
        ("enum", 24, Form::List(&Form::Any)),
        ("type", 25, Form::Text),
        ("allOf", 26, Form::List(&Form::OneOf(SCHEMA_OR_REFERENCE))),
        ("oneOf", 27, Form::List(&Form::OneOf(SCHEMA_OR_REFERENCE))),
        ("anyOf", 28, Form::List(&Form::OneOf(SCHEMA_OR_REFERENCE))),
        ("not", 29, Form::Message(&SCHEMA)),
        ("items", 30, Form::Wrapped(&Form::OneOf(SCHEMA_OR_REFERENCE))),
        ("properties", 31, Form::Message(&PROPERTIES)),
        (
            "additionalProperties",
            32,
            Form::OneOf(&[
                (Look::Flag, 2, Form::Flag),
                (Look::Object, 1, Form::OneOf(SCHEMA_OR_REFERENCE)),
            ]),
        ),
        (
            "default",
            33,
            Form::OneOf(&[
                (Look::Number, 1, Form::Number),
                (Look::Flag, 2, Form::Flag),
                (Look::Text, 3, Form::Text),
            ]),
        ),
        ("description", 34, Form::Text),
        ("format", 35, Form::Text),
    ],
    rest: None,
    extensions: 36,
};
