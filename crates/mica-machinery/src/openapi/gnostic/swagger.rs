//! The messages of `openapi.v2`.

use super::{Choices, EXTERNAL_DOCS, Form, Look, Message, SECURITY_REQUIREMENT};

pub(super) static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Form::Text),
        ("info", 2, Form::Message(&INFO)),
        ("host", 3, Form::Text),
        ("basePath", 4, Form::Text),
        ("schemes", 5, Form::List(&Form::Text)),
        ("consumes", 6, Form::List(&Form::Text)),
        ("produces", 7, Form::List(&Form::Text)),
        ("paths", 8, Form::Message(&PATHS)),
        ("definitions", 9, Form::Message(&SCHEMAS)),
        ("parameters", 10, Form::Message(&PARAMETERS)),
        ("security", 12, Form::List(&Form::Message(&SECURITY_REQUIREMENT))),
        ("securityDefinitions", 13, Form::Message(&SECURITY_DEFINITIONS)),
    ],
    rest: None,
    extensions: 16,
};

static INFO: Message = Message {
    fields: &[
        ("title", 1, Form::Text),
        ("version", 2, Form::Text),
        ("description", 3, Form::Text),
    ],
    rest: None,
    extensions: 7,
};

static PATHS: Message = Message {
    fields: &[],
    rest: Some((2, Form::Message(&PATH_ITEM))),
    extensions: 0,
};

static SCHEMAS: Message = Message {
    fields: &[],
    rest: Some((1, Form::Message(&SCHEMA))),
    extensions: 0,
};

static PARAMETERS: Message = Message {
    fields: &[],
    rest: Some((1, Form::OneOf(PARAMETER))),
    extensions: 0,
};

static SECURITY_DEFINITIONS: Message = Message {
    fields: &[],
    rest: Some((1, Form::OneOf(SECURITY_DEFINITION))),
    extensions: 0,
};

static SECURITY_DEFINITION: Choices = &[
    (Look::Type("basic"), 1, Form::Message(&BASIC_AUTHENTICATION)),
    (Look::Type("apiKey"), 2, Form::Message(&API_KEY)),
];

static BASIC_AUTHENTICATION: Message = Message {
    fields: &[("type", 1, Form::Text), ("description", 2, Form::Text)],
    rest: None,
    extensions: 3,
};

static API_KEY: Message = Message {
    fields: &[
        ("type", 1, Form::Text),
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("description", 4, Form::Text),
    ],
    rest: None,
    extensions: 5,
};

static REFERENCE: Message = Message {
    fields: &[("$ref", 1, Form::Text), ("description", 2, Form::Text)],
    rest: None,
    extensions: 0,
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 2, Form::Message(&OPERATION)),
        ("put", 3, Form::Message(&OPERATION)),
        ("post", 4, Form::Message(&OPERATION)),
        ("delete", 5, Form::Message(&OPERATION)),
        ("options", 6, Form::Message(&OPERATION)),
        ("head", 7, Form::Message(&OPERATION)),
        ("patch", 8, Form::Message(&OPERATION)),
        ("parameters", 9, Form::List(&Form::OneOf(PARAMETER_OR_REFERENCE))),
    ],
    rest: None,
    extensions: 10,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Form::List(&Form::Text)),
        ("summary", 2, Form::Text),
        ("description", 3, Form::Text),
        ("operationId", 5, Form::Text),
        ("produces", 6, Form::List(&Form::Text)),
        ("consumes", 7, Form::List(&Form::Text)),
        ("parameters", 8, Form::List(&Form::OneOf(PARAMETER_OR_REFERENCE))),
        ("responses", 9, Form::Message(&RESPONSES)),
        ("schemes", 10, Form::List(&Form::Text)),
        ("deprecated", 11, Form::Flag),
    ],
    rest: None,
    extensions: 13,
};

static PARAMETER_OR_REFERENCE: Choices = &[
    (Look::Reference, 2, Form::Message(&REFERENCE)),
    (Look::Object, 1, Form::OneOf(PARAMETER)),
];

static PARAMETER: Choices = &[
    (Look::In("body"), 1, Form::Message(&BODY_PARAMETER)),
    (
        Look::Object,
        2,
        Form::OneOf(&[
            (Look::In("header"), 1, Form::Message(&PLAIN_PARAMETER)),
            (Look::In("query"), 3, Form::Message(&QUERY_PARAMETER)),
            (Look::In("path"), 4, Form::Message(&PLAIN_PARAMETER)),
        ]),
    ),
];

static BODY_PARAMETER: Message = Message {
    fields: &[
        ("description", 1, Form::Text),
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("required", 4, Form::Flag),
        ("schema", 5, Form::Message(&SCHEMA)),
    ],
    rest: None,
    extensions: 6,
};

/// Those in the path and in headers.
static PLAIN_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("type", 5, Form::Text),
        ("format", 6, Form::Text),
        ("uniqueItems", 19, Form::Flag),
    ],
    rest: None,
    extensions: 22,
};

/// Those in the query, which have one field more, so that all after it are one further.
static QUERY_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("allowEmptyValue", 5, Form::Flag),
        ("type", 6, Form::Text),
        ("format", 7, Form::Text),
        ("uniqueItems", 20, Form::Flag),
    ],
    rest: None,
    extensions: 23,
};

static RESPONSES: Message = Message {
    fields: &[],
    rest: Some((
        1,
        Form::OneOf(&[
            (Look::Reference, 2, Form::Message(&REFERENCE)),
            (Look::Object, 1, Form::Message(&RESPONSE)),
        ]),
    )),
    extensions: 0,
};

static RESPONSE: Message = Message {
    fields: &[
        ("description", 1, Form::Text),
        ("schema", 2, Form::OneOf(&[(Look::Object, 1, Form::Message(&SCHEMA))])),
    ],
    rest: None,
    extensions: 5,
};

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Form::Text),
        ("format", 2, Form::Text),
        ("title", 3, Form::Text),
        ("description", 4, Form::Text),
        ("default", 5, Form::Any),
        ("multipleOf", 6, Form::Number),
        ("maximum", 7, Form::Number),
        ("exclusiveMaximum", 8, Form::Flag),
        ("minimum", 9, Form::Number),
        ("exclusiveMinimum", 10, Form::Flag),
        ("maxLength", 11, Form::Integer),
        ("minLength", 12, Form::Integer),
        ("pattern", 13, Form::Text),
        ("maxItems", 14, Form::Integer),
        ("minItems", 15, Form::Integer),
        ("uniqueItems", 16, Form::Flag),
        ("maxProperties", 17, Form::Integer),
        ("minProperties", 18, Form::Integer),
        ("required", 19, Form::List(&Form::Text)),
        ("enum", 20, Form::List(&Form::Any)),
        (
            "additionalProperties",
            21,
            Form::OneOf(&[(Look::Flag, 2, Form::Flag), (Look::Object, 1, Form::Message(&SCHEMA))]),
        ),
        ("type", 22, Form::Wrapped(&Form::List(&Form::Text))),
        ("items", 23, Form::Wrapped(&Form::List(&Form::Message(&SCHEMA)))),
        ("allOf", 24, Form::List(&Form::Message(&SCHEMA))),
        ("properties", 25, Form::Message(&SCHEMAS)),
        ("discriminator", 26, Form::Text),
        ("readOnly", 27, Form::Flag),
        ("externalDocs", 29, Form::Message(&EXTERNAL_DOCS)),
        ("example", 30, Form::Any),
    ],
    rest: None,
    extensions: 31,
};
