//! `bit` for scripts: operations on 32-bit numbers.

use mlua::{Lua, Table, Variadic};

/// The low 32 bits of a number, rounded to a whole one.
fn bits(value: f64) -> i32 {
    if !value.is_finite() {
        return 0;
    }
    // The remainder is exact and below 2^32 in size, so that it fits.
    (value.round_ties_even() % 4_294_967_296.0) as i64 as i32
}

/// Operations by name.
type Named<T> = (&'static str, T);
type Unary = fn(i32) -> i32;
type Binary = fn(i32, i32) -> i32;
type Shift = fn(i32, u32) -> i32;

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let bit = lua.create_table()?;
    let unary: [Named<Unary>; 3] = [
        ("tobit", |a| a),
        ("bnot", |a| !a),
        ("bswap", i32::swap_bytes),
    ];
    for (name, operation) in unary {
        bit.raw_set(
            name,
            lua.create_function(move |_, a: f64| Ok(operation(bits(a))))?,
        )?;
    }
    let folds: [Named<Binary>; 3] = [
        ("band", |a, b| a & b),
        ("bor", |a, b| a | b),
        ("bxor", |a, b| a ^ b),
    ];
    for (name, operation) in folds {
        let fold = move |_: &Lua, (first, rest): (f64, Variadic<f64>)| {
            Ok(rest
                .iter()
                .fold(bits(first), |all, value| operation(all, bits(*value))))
        };
        bit.raw_set(name, lua.create_function(fold)?)?;
    }
    // Only the low five bits of the distance count.
    let shifts: [Named<Shift>; 5] = [
        ("lshift", |a, n| a.wrapping_shl(n)),
        ("rshift", |a, n| {
            a.cast_unsigned().wrapping_shr(n).cast_signed()
        }),
        ("arshift", |a, n| a.wrapping_shr(n)),
        ("rol", |a, n| a.rotate_left(n & 31)),
        ("ror", |a, n| a.rotate_right(n & 31)),
    ];
    for (name, operation) in shifts {
        let shift =
            move |_: &Lua, (a, n): (f64, f64)| Ok(operation(bits(a), bits(n).cast_unsigned()));
        bit.raw_set(name, lua.create_function(shift)?)?;
    }
    let to_hex = |_: &Lua, (value, digits): (f64, Option<f64>)| {
        let digits = digits.map_or(8, bits);
        let width = usize::try_from(digits.unsigned_abs().min(8)).unwrap_or(8);
        let value = bits(value).cast_unsigned();
        let text = if digits < 0 {
            format!("{value:08X}")
        } else {
            format!("{value:08x}")
        };
        Ok(text[8 - width..].to_owned())
    };
    bit.raw_set("tohex", lua.create_function(to_hex)?)?;
    Ok(bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_at_32_bits() {
        for (value, expected) in [
            (0.0, 0),
            (-1.0, -1),
            (4_294_967_295.0, -1),
            (2_147_483_648.0, i32::MIN),
            (1e10, 1_410_065_408),
            (f64::NAN, 0),
        ] {
            assert_eq!(bits(value), expected, "{value}");
        }
    }

    #[test]
    fn operations() {
        let lua = Lua::new();
        lua.globals().set("bit", library(&lua).unwrap()).unwrap();
        for (code, expected) in [
            ("bit.band(0xff, 0x0f)", 0x0f),
            ("bit.rshift(-1, 31)", 1),
            ("bit.arshift(-256, 8)", -1),
            ("bit.lshift(1, 33)", 2),
            ("bit.rol(0x12345678, 12)", 0x4567_8123),
            ("bit.bswap(0x12345678)", 0x7856_3412),
        ] {
            assert_eq!(lua.load(code).eval::<i64>().unwrap(), expected, "{code}");
        }
        assert_eq!(
            lua.load("bit.tohex(-1, -4)").eval::<String>().unwrap(),
            "FFFF"
        );
    }
}
