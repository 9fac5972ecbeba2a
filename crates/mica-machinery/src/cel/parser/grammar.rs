//! CEL's grammar, as upstream's parser generator reads it: left recursion is already turned into loops, and each choice says
//! whether it looks at one token or at as many as it takes.

use super::network::{Alternative, Choice, Item, Rule};
use super::tree::{Label, Role};
use crate::cel::lexer::Token;

/// Operators that compare.
pub(super) const RELATIONS: &[Token] = &[
    Token::Less,
    Token::LessEquals,
    Token::GreaterEquals,
    Token::Greater,
    Token::Equals,
    Token::NotEquals,
    Token::In,
];

const COMMA: Item = Item::Token(&[Token::Comma], Role::Plain);
const OPTIONAL: Item = Item::Maybe(&[Item::Token(&[Token::Question], Role::Optional)]);
const LEADING_DOT: Item = Item::Maybe(&[Item::Token(&[Token::Dot], Role::LeadingDot)]);
const NAME: Item = Item::Token(&[Token::Ident], Role::Name);
const SIGN: Item = Item::Maybe(&[Item::Token(&[Token::Minus], Role::Sign)]);
const MEMBER: Item = Item::Call(Rule::Member, 0, Role::First);

pub(super) const RULES: [(Rule, &[Item]); Rule::COUNT] = [
    (
        Rule::Start,
        &[
            Item::Call(Rule::Expr, 0, Role::First),
            Item::Token(&[Token::End], Role::Plain),
        ],
    ),
    (
        Rule::Expr,
        &[
            Item::Call(Rule::Or, 0, Role::First),
            Item::Maybe(&[
                Item::Token(&[Token::Question], Role::Operator),
                Item::Call(Rule::Or, 0, Role::Rest),
                Item::Token(&[Token::Colon], Role::Plain),
                Item::Call(Rule::Expr, 0, Role::Last),
            ]),
        ],
    ),
    (
        Rule::Or,
        &[
            Item::Call(Rule::And, 0, Role::First),
            Item::Star(
                Choice::Next,
                &[(
                    Label::Or,
                    &[
                        Item::Token(&[Token::Or], Role::Operator),
                        Item::Call(Rule::And, 0, Role::Rest),
                    ],
                )],
            ),
        ],
    ),
    (
        Rule::And,
        &[
            Item::Call(Rule::Relation, 0, Role::First),
            Item::Star(
                Choice::Next,
                &[(
                    Label::And,
                    &[
                        Item::Token(&[Token::And], Role::Operator),
                        Item::Call(Rule::Relation, 0, Role::Rest),
                    ],
                )],
            ),
        ],
    ),
    (
        Rule::Relation,
        &[
            Item::Call(Rule::Calc, 0, Role::First),
            Item::Star(
                Choice::Ahead,
                &[(
                    Label::Relation,
                    &[
                        Item::Precedence(1),
                        Item::Token(RELATIONS, Role::Operator),
                        Item::Call(Rule::Relation, 2, Role::Rest),
                    ],
                )],
            ),
        ],
    ),
    (
        Rule::Calc,
        &[
            Item::Call(Rule::Unary, 0, Role::First),
            Item::Star(
                Choice::Ahead,
                &[
                    (
                        Label::Calc,
                        &[
                            Item::Precedence(2),
                            Item::Token(&[Token::Star, Token::Slash, Token::Percent], Role::Operator),
                            Item::Call(Rule::Calc, 3, Role::Rest),
                        ],
                    ),
                    (
                        Label::Calc,
                        &[
                            Item::Precedence(1),
                            Item::Token(&[Token::Plus, Token::Minus], Role::Operator),
                            Item::Call(Rule::Calc, 2, Role::Rest),
                        ],
                    ),
                ],
            ),
        ],
    ),
    (
        Rule::Unary,
        &[Item::Either(
            Choice::Ahead,
            &[
                (Label::MemberExpr, &[MEMBER]),
                (
                    Label::Not,
                    &[
                        Item::Plus(Choice::Next, &[Item::Token(&[Token::Exclam], Role::Operator)]),
                        MEMBER,
                    ],
                ),
                (
                    Label::Negate,
                    &[
                        Item::Plus(Choice::Ahead, &[Item::Token(&[Token::Minus], Role::Operator)]),
                        MEMBER,
                    ],
                ),
            ],
        )],
    ),
    (
        Rule::Member,
        &[
            Item::Call(Rule::Primary, 0, Role::First),
            Item::Star(Choice::Ahead, MEMBERS),
        ],
    ),
    (Rule::Primary, &[Item::Either(Choice::Ahead, PRIMARIES)]),
    (
        Rule::ExprList,
        &[
            Item::Call(Rule::Expr, 0, Role::Rest),
            Item::Star(
                Choice::Next,
                &[(Label::ExprList, &[COMMA, Item::Call(Rule::Expr, 0, Role::Rest)])],
            ),
        ],
    ),
    (
        Rule::ListInit,
        &[
            Item::Call(Rule::OptExpr, 0, Role::Rest),
            Item::Star(
                Choice::Ahead,
                &[(Label::ListInit, &[COMMA, Item::Call(Rule::OptExpr, 0, Role::Rest)])],
            ),
        ],
    ),
    (
        Rule::FieldInits,
        &[
            Item::Call(Rule::OptField, 0, Role::Key),
            Item::Token(&[Token::Colon], Role::Colon),
            Item::Call(Rule::Expr, 0, Role::Value),
            Item::Star(
                Choice::Ahead,
                &[(
                    Label::FieldInits,
                    &[
                        COMMA,
                        Item::Call(Rule::OptField, 0, Role::Key),
                        Item::Token(&[Token::Colon], Role::Colon),
                        Item::Call(Rule::Expr, 0, Role::Value),
                    ],
                )],
            ),
        ],
    ),
    (
        Rule::OptField,
        &[OPTIONAL, Item::Call(Rule::EscapeIdent, 0, Role::Name)],
    ),
    (
        Rule::MapInits,
        &[
            Item::Call(Rule::OptExpr, 0, Role::Key),
            Item::Token(&[Token::Colon], Role::Colon),
            Item::Call(Rule::Expr, 0, Role::Value),
            Item::Star(
                Choice::Ahead,
                &[(
                    Label::MapInits,
                    &[
                        COMMA,
                        Item::Call(Rule::OptExpr, 0, Role::Key),
                        Item::Token(&[Token::Colon], Role::Colon),
                        Item::Call(Rule::Expr, 0, Role::Value),
                    ],
                )],
            ),
        ],
    ),
    (
        Rule::EscapeIdent,
        &[Item::Either(
            Choice::Next,
            &[
                (Label::SimpleIdent, &[NAME]),
                (Label::EscapedIdent, &[Item::Token(&[Token::EscapedIdent], Role::Name)]),
            ],
        )],
    ),
    (Rule::OptExpr, &[OPTIONAL, Item::Call(Rule::Expr, 0, Role::First)]),
    (Rule::Literal, &[Item::Either(Choice::Ahead, LITERALS)]),
];

const MEMBERS: &[Alternative] = &[
    (
        Label::Select,
        &[
            Item::Precedence(3),
            Item::Token(&[Token::Dot], Role::Operator),
            OPTIONAL,
            Item::Call(Rule::EscapeIdent, 0, Role::Name),
        ],
    ),
    (
        Label::MemberCall,
        &[
            Item::Precedence(2),
            Item::Token(&[Token::Dot], Role::Operator),
            NAME,
            Item::Token(&[Token::LeftParen], Role::Open),
            Item::Maybe(&[Item::Call(Rule::ExprList, 0, Role::Arguments)]),
            Item::Token(&[Token::RightParen], Role::Plain),
        ],
    ),
    (
        Label::Index,
        &[
            Item::Precedence(1),
            Item::Token(&[Token::LeftBracket], Role::Operator),
            OPTIONAL,
            Item::Call(Rule::Expr, 0, Role::Rest),
            Item::Token(&[Token::RightBracket], Role::Plain),
        ],
    ),
];

const PRIMARIES: &[Alternative] = &[
    (Label::Ident, &[LEADING_DOT, NAME]),
    (
        Label::GlobalCall,
        &[
            LEADING_DOT,
            NAME,
            Item::Token(&[Token::LeftParen], Role::Open),
            Item::Maybe(&[Item::Call(Rule::ExprList, 0, Role::Arguments)]),
            Item::Token(&[Token::RightParen], Role::Plain),
        ],
    ),
    (
        Label::Nested,
        &[
            Item::Token(&[Token::LeftParen], Role::Plain),
            Item::Call(Rule::Expr, 0, Role::First),
            Item::Token(&[Token::RightParen], Role::Plain),
        ],
    ),
    (
        Label::List,
        &[
            Item::Token(&[Token::LeftBracket], Role::Operator),
            Item::Maybe(&[Item::Call(Rule::ListInit, 0, Role::Arguments)]),
            Item::Maybe(&[COMMA]),
            Item::Token(&[Token::RightBracket], Role::Plain),
        ],
    ),
    (
        Label::Map,
        &[
            Item::Token(&[Token::LeftBrace], Role::Operator),
            Item::Maybe(&[Item::Call(Rule::MapInits, 0, Role::Arguments)]),
            Item::Maybe(&[COMMA]),
            Item::Token(&[Token::RightBrace], Role::Plain),
        ],
    ),
    (
        Label::Message,
        &[
            LEADING_DOT,
            NAME,
            Item::Star(
                Choice::Next,
                &[(Label::Message, &[Item::Token(&[Token::Dot], Role::Plain), NAME])],
            ),
            Item::Token(&[Token::LeftBrace], Role::Operator),
            Item::Maybe(&[Item::Call(Rule::FieldInits, 0, Role::Arguments)]),
            Item::Maybe(&[COMMA]),
            Item::Token(&[Token::RightBrace], Role::Plain),
        ],
    ),
    (Label::Constant, &[Item::Call(Rule::Literal, 0, Role::First)]),
];

const LITERALS: &[Alternative] = &[
    (Label::Int, &[SIGN, Item::Token(&[Token::Int], Role::First)]),
    (Label::Uint, &[Item::Token(&[Token::Uint], Role::First)]),
    (Label::Double, &[SIGN, Item::Token(&[Token::Float], Role::First)]),
    (Label::String, &[Item::Token(&[Token::String], Role::First)]),
    (Label::Bytes, &[Item::Token(&[Token::Bytes], Role::First)]),
    (Label::True, &[Item::Token(&[Token::True], Role::First)]),
    (Label::False, &[Item::Token(&[Token::False], Role::First)]),
    (Label::Null, &[Item::Token(&[Token::Null], Role::First)]),
];
