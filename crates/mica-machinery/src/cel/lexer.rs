//! Tokens of the expression language, by CEL's lexical grammar: the longest match wins, comments and blanks are dropped.

/// What a token is, in the order in which errors list what was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Token {
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Exclam,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Ident,
    EscapedIdent,
    End,
}

impl Token {
    pub const ALL: [Self; 36] = [
        Self::Equals,
        Self::NotEquals,
        Self::In,
        Self::Less,
        Self::LessEquals,
        Self::GreaterEquals,
        Self::Greater,
        Self::And,
        Self::Or,
        Self::LeftBracket,
        Self::RightBracket,
        Self::LeftBrace,
        Self::RightBrace,
        Self::LeftParen,
        Self::RightParen,
        Self::Dot,
        Self::Comma,
        Self::Minus,
        Self::Exclam,
        Self::Question,
        Self::Colon,
        Self::Plus,
        Self::Star,
        Self::Slash,
        Self::Percent,
        Self::True,
        Self::False,
        Self::Null,
        Self::Float,
        Self::Int,
        Self::Uint,
        Self::String,
        Self::Bytes,
        Self::Ident,
        Self::EscapedIdent,
        Self::End,
    ];

    /// What errors call it.
    pub fn shown(self) -> &'static str {
        match self {
            Self::Equals => "'=='",
            Self::NotEquals => "'!='",
            Self::In => "'in'",
            Self::Less => "'<'",
            Self::LessEquals => "'<='",
            Self::GreaterEquals => "'>='",
            Self::Greater => "'>'",
            Self::And => "'&&'",
            Self::Or => "'||'",
            Self::LeftBracket => "'['",
            Self::RightBracket => "']'",
            Self::LeftBrace => "'{'",
            Self::RightBrace => "'}'",
            Self::LeftParen => "'('",
            Self::RightParen => "')'",
            Self::Dot => "'.'",
            Self::Comma => "','",
            Self::Minus => "'-'",
            Self::Exclam => "'!'",
            Self::Question => "'?'",
            Self::Colon => "':'",
            Self::Plus => "'+'",
            Self::Star => "'*'",
            Self::Slash => "'/'",
            Self::Percent => "'%'",
            Self::True => "'true'",
            Self::False => "'false'",
            Self::Null => "'null'",
            Self::Float => "NUM_FLOAT",
            Self::Int => "NUM_INT",
            Self::Uint => "NUM_UINT",
            Self::String => "STRING",
            Self::Bytes => "BYTES",
            Self::Ident => "IDENTIFIER",
            Self::EscapedIdent => "ESC_IDENTIFIER",
            Self::End => "<EOF>",
        }
    }
}

/// A token and the characters it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lexeme {
    pub token: Token,
    pub start: usize,
    pub end: usize,
}

/// The tokens of a text, `End` last, and where characters are that are no token: `(offset, length)`.
#[derive(Debug)]
pub struct Lexed {
    pub lexemes: Vec<Lexeme>,
    pub unknown: Vec<(usize, usize)>,
}

pub fn lex(chars: &[char]) -> Lexed {
    let mut lexemes = Vec::new();
    let mut unknown = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let blank = blank_length(rest);
        if blank > 0 {
            at += blank;
            continue;
        }
        match next(rest) {
            Ok((token, length)) => {
                lexemes.push(Lexeme {
                    token,
                    start: at,
                    end: at + length,
                });
                at += length;
            }
            Err(length) => {
                unknown.push((at, length));
                at += length;
            }
        }
    }
    lexemes.push(Lexeme {
        token: Token::End,
        start: chars.len(),
        end: chars.len(),
    });
    Lexed { lexemes, unknown }
}

fn blank_length(rest: &[char]) -> usize {
    if rest.starts_with(&['/', '/']) {
        return rest.iter().position(|&c| c == '\n').unwrap_or(rest.len());
    }
    rest.iter()
        .take_while(|c| matches!(c, '\t' | ' ' | '\r' | '\n' | '\u{c}'))
        .count()
}

/// The token at the start of `rest`, or how many characters are no token.
fn next(rest: &[char]) -> Result<(Token, usize), usize> {
    let first = rest[0];
    if let Some(found) = quoted(rest) {
        return found;
    }
    if first.is_ascii_digit() || (first == '.' && rest.get(1).is_some_and(char::is_ascii_digit)) {
        return Ok(number(rest));
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let length = rest
            .iter()
            .take_while(|c| c.is_ascii_alphanumeric() || **c == '_')
            .count();
        let word: String = rest[..length].iter().collect();
        let token = match word.as_str() {
            "in" => Token::In,
            "true" => Token::True,
            "false" => Token::False,
            "null" => Token::Null,
            _ => Token::Ident,
        };
        return Ok((token, length));
    }
    if first == '`' {
        let length = rest[1..]
            .iter()
            .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' '))
            .count();
        return match rest.get(length + 1) {
            Some('`') if length > 0 => Ok((Token::EscapedIdent, length + 2)),
            _ => Err(length + 1 + usize::from(rest.len() > length + 1)),
        };
    }
    symbol(rest)
}

fn symbol(rest: &[char]) -> Result<(Token, usize), usize> {
    let second = rest.get(1).copied();
    let found = match (rest[0], second) {
        ('=', Some('=')) => (Token::Equals, 2),
        ('!', Some('=')) => (Token::NotEquals, 2),
        ('<', Some('=')) => (Token::LessEquals, 2),
        ('>', Some('=')) => (Token::GreaterEquals, 2),
        ('&', Some('&')) => (Token::And, 2),
        ('|', Some('|')) => (Token::Or, 2),
        ('=' | '&' | '|', Some(_)) => return Err(2),
        ('<', _) => (Token::Less, 1),
        ('>', _) => (Token::Greater, 1),
        ('[', _) => (Token::LeftBracket, 1),
        (']', _) => (Token::RightBracket, 1),
        ('{', _) => (Token::LeftBrace, 1),
        ('}', _) => (Token::RightBrace, 1),
        ('(', _) => (Token::LeftParen, 1),
        (')', _) => (Token::RightParen, 1),
        ('.', _) => (Token::Dot, 1),
        (',', _) => (Token::Comma, 1),
        ('-', _) => (Token::Minus, 1),
        ('!', _) => (Token::Exclam, 1),
        ('?', _) => (Token::Question, 1),
        (':', _) => (Token::Colon, 1),
        ('+', _) => (Token::Plus, 1),
        ('*', _) => (Token::Star, 1),
        ('/', _) => (Token::Slash, 1),
        ('%', _) => (Token::Percent, 1),
        _ => return Err(1),
    };
    Ok(found)
}

fn number(rest: &[char]) -> (Token, usize) {
    let digits = |from: usize| {
        rest[from.min(rest.len())..]
            .iter()
            .take_while(|c| c.is_ascii_digit())
            .count()
    };
    let suffix = |at: usize| matches!(rest.get(at), Some('u' | 'U'));
    if rest.starts_with(&['0', 'x']) {
        let hex = rest[2..].iter().take_while(|c| c.is_ascii_hexdigit()).count();
        if hex > 0 {
            let end = 2 + hex;
            return if suffix(end) {
                (Token::Uint, end + 1)
            } else {
                (Token::Int, end)
            };
        }
    }
    let whole = digits(0);
    let mut end = whole;
    let mut float = false;
    if rest.get(end) == Some(&'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
        float = true;
    }
    if matches!(rest.get(end), Some('e' | 'E')) {
        let sign = usize::from(matches!(rest.get(end + 1), Some('+' | '-')));
        let power = digits(end + 1 + sign);
        if power > 0 {
            end += 1 + sign + power;
            float = true;
        }
    }
    match float {
        true => (Token::Float, end),
        false if suffix(end) => (Token::Uint, end + 1),
        false => (Token::Int, end),
    }
}

/// A string or bytes literal, if `rest` starts like one.
fn quoted(rest: &[char]) -> Option<Result<(Token, usize), usize>> {
    let mut at = 0;
    let mut token = Token::String;
    if matches!(rest[at], 'b' | 'B') && matches!(rest.get(1), Some('r' | 'R' | '"' | '\'')) {
        token = Token::Bytes;
        at += 1;
    }
    let raw = matches!(rest[at], 'r' | 'R');
    if raw {
        at += 1;
    }
    let quote = *rest.get(at).filter(|c| matches!(c, '"' | '\''))?;
    let triple = rest[at..].starts_with(&[quote; 3]);
    let end = if triple {
        close_triple(rest, at + 3, quote, raw)
    } else {
        None
    };
    let end = end.or_else(|| close_single(rest, at + 1, quote, raw));
    Some(match end {
        Some(end) => Ok((token, end)),
        // The letters before the quote are a name, if nothing better.
        None if at > 0 => return None,
        // What the lexer had read when it found no token: up to the first character that fits no alternative.
        None => Err(broken_length(rest, quote)),
    })
}

fn close_triple(rest: &[char], from: usize, quote: char, raw: bool) -> Option<usize> {
    let mut at = from;
    while at < rest.len() {
        if rest[at..].starts_with(&[quote; 3]) {
            return Some(at + 3);
        }
        at += if rest[at] == '\\' && !raw {
            escape_length(&rest[at..])?
        } else {
            1
        };
    }
    None
}

fn close_single(rest: &[char], from: usize, quote: char, raw: bool) -> Option<usize> {
    let mut at = from;
    while at < rest.len() {
        match rest[at] {
            c if c == quote => return Some(at + 1),
            '\n' | '\r' => return None,
            '\\' if !raw => at += escape_length(&rest[at..])?,
            _ => at += 1,
        }
    }
    None
}

fn broken_length(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            c if c == quote => return at,
            '\n' | '\r' => return at + 1,
            '\\' => match escape_length(&rest[at..]) {
                Some(length) => at += length,
                None => return (at + broken_escape_length(&rest[at..])).min(rest.len()),
            },
            _ => at += 1,
        }
    }
    rest.len()
}

/// How far into a bad escape the lexer reads: up to the first character that does not fit.
fn broken_escape_length(rest: &[char]) -> usize {
    let good = match rest.get(1) {
        Some('x' | 'X' | 'u' | 'U') => rest[2..].iter().take_while(|c| c.is_ascii_hexdigit()).count(),
        Some('0'..='3') => rest[2..].iter().take_while(|c| ('0'..='7').contains(*c)).count(),
        _ => return 2,
    };
    good + 3
}

/// The length of the escape sequence that `rest` starts with.
fn escape_length(rest: &[char]) -> Option<usize> {
    let hex = |count: usize| {
        rest.get(2..2 + count)
            .is_some_and(|d| d.iter().all(char::is_ascii_hexdigit))
    };
    match rest.get(1)? {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Some(2),
        'x' | 'X' => hex(2).then_some(4),
        'u' => hex(4).then_some(6),
        'U' => hex(8).then_some(10),
        '0'..='3' => rest
            .get(2..4)
            .is_some_and(|d| d.iter().all(|c| ('0'..='7').contains(c)))
            .then_some(4),
        _ => None,
    }
}
