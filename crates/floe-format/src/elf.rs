//! The system that a program is for, from the first bytes of its file.

/// Returns Nix's name of the system of a program or library, such as `x86_64-linux`, from the first
/// 20 bytes of its file. Returns `None` for another file and for an unknown machine.
///
/// The formats are those of the System V ABI ("ELF header") and of `mach/machine.h`.
pub fn system_of_file(head: &[u8]) -> Option<&'static str> {
    let head = head.get(..HEAD_LEN)?;
    if let Some(machine) = head.strip_prefix(&MACH_O_64) {
        return match machine[..4] {
            [7, 0, 0, 1] => Some("x86_64-darwin"),
            [12, 0, 0, 1] => Some("aarch64-darwin"),
            _ => None,
        };
    }
    let is_elf = head.starts_with(b"\x7fELF");
    let (class, order, abi) = (head[4], head[5], head[7]);
    if !is_elf || !LINUX_ABIS.contains(&abi) {
        return None;
    }
    let bytes = [head[18], head[19]];
    let machine = match order {
        LITTLE_ENDIAN => u16::from_le_bytes(bytes),
        _ => u16::from_be_bytes(bytes),
    };
    match (machine, class, order) {
        (3, 1, LITTLE_ENDIAN) => Some("i686-linux"),
        (21, 2, LITTLE_ENDIAN) => Some("powerpc64le-linux"),
        (40, 1, LITTLE_ENDIAN) => Some("armv7l-linux"),
        (62, 2, LITTLE_ENDIAN) => Some("x86_64-linux"),
        (183, 2, LITTLE_ENDIAN) => Some("aarch64-linux"),
        (243, 2, LITTLE_ENDIAN) => Some("riscv64-linux"),
        (258, 2, LITTLE_ENDIAN) => Some("loongarch64-linux"),
        _ => None,
    }
}

/// How many bytes of a file [`system_of_file`] needs.
pub const HEAD_LEN: usize = 20;

/// The beginning of a 64-bit Mach-O file.
const MACH_O_64: [u8; 4] = [0xcf, 0xfa, 0xed, 0xfe];

/// The values of `EI_OSABI` in files for Linux: System V and GNU.
const LINUX_ABIS: [u8; 2] = [0, 3];

/// The value of `EI_DATA` for little-endian files.
const LITTLE_ENDIAN: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_of_this_program_is_that_of_this_machine() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let expected = format!("{}-linux", std::env::consts::ARCH);
        assert_eq!(system_of_file(&program), Some(&*expected));
        let mut other = program[..HEAD_LEN].to_vec();
        other[18] = 183;
        assert_eq!(system_of_file(&other), Some("aarch64-linux"));
        other[7] = 9;
        assert_eq!(system_of_file(&other), None, "FreeBSD");
        assert_eq!(system_of_file(&program[..19]), None);
        assert_eq!(system_of_file(b"#!/bin/sh\necho a program of text\n"), None);
        let mut mach_o = [0; HEAD_LEN];
        mach_o[..8].copy_from_slice(&[0xcf, 0xfa, 0xed, 0xfe, 12, 0, 0, 1]);
        assert_eq!(system_of_file(&mach_o), Some("aarch64-darwin"));
    }
}
