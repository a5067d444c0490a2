//! Commands as bytes (RESP2).

use crate::wire::{Call, Publish};

/// Appends a command; returns the length after it.
pub(in crate::connection) fn command(out: &mut Vec<u8>, words: &[&[u8]]) -> usize {
    header(out, b'*', words.len());
    words.iter().for_each(|bytes| word(out, bytes));
    out.len()
}

/// Appends the EVALSHA of a call; returns the length after it.
pub(in crate::connection) fn evalsha(out: &mut Vec<u8>, call: &Call, publish: Publish) -> usize {
    call.is_sent();
    header(out, b'*', 3 + call.word_count());
    word(out, b"EVALSHA");
    word(out, call.script().sha.as_bytes());
    word(out, itoa::Buffer::new().format(call.key_count()).as_bytes());
    for bytes in call.words_for(publish) {
        word(out, bytes);
    }
    out.len()
}

fn word(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn header(out: &mut Vec<u8>, kind: u8, count: usize) {
    let digit = |digit: usize| b'0' + (digit % 10) as u8;
    match count {
        ..10 => out.extend_from_slice(&[kind, digit(count), b'\r', b'\n']),
        10..100 => out.extend_from_slice(&[kind, digit(count / 10), digit(count), b'\r', b'\n']),
        _ => {
            out.push(kind);
            out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client library's encoding of the same words.
    fn packed(words: &[&[u8]]) -> Vec<u8> {
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(*word);
        });
        command.get_packed_command()
    }

    #[test]
    fn a_command_is_the_same_bytes_as_that_of_the_client_library() {
        let long = vec![b'x'; 12_345];
        let cases: [&[&[u8]]; 7] = [
            &[b"PING"],
            &[b"SET", b"", b"\r\n"],
            &[b"HDEL", b"k\0", &long],
            &[&long[..9], &long[..10], &long[..11]],
            &[&long[..98], &long[..99], &long[..100]],
            &[&b"a"[..]; 10],
            &[&b"a"[..]; 101],
        ];
        let mut all = Vec::new();
        for words in cases {
            let before = all.len();
            let end = command(&mut all, words);
            assert_eq!(end, all.len());
            assert_eq!(all[before..], packed(words));
        }
    }
}
