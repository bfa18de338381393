#!/bin/sh
# Installs floe from the files of a release, as root or as an ordinary user.
#
# The script checks the SHA-256 of what it fetches, and the signature of the sums if this release
# is signed and ssh-keygen is there. It changes nothing until everything has been checked, and it
# runs with any POSIX shell, also that of busybox.

set -eu
export LC_ALL=C
# All users may run what root installs.
[ "$(id -u)" -ne 0 ] || umask 022

# The address of the release, which --url replaces.
url=''
# The public key of the release, in the form `ssh-ed25519 KEY`, which --signer replaces.
signer=''

prefix=''
action='install'
link_names=''
temporary=''
record='share/doc/floe/installed'
# The end of the names of files that are not in their places yet. Two runs use different names.
new=".floe-new-$$"
# The names under which `floe link-names` links floe.
nix_names='nix nix-collect-garbage nix-copy-closure nix-daemon nix-env nix-store'

usage() {
	cat <<END
Installs floe, or removes it.

Usage: install.sh [OPTIONS]

Options:
  --url URL       Where the files of the release are: http://, https://, file:// or a directory
  --prefix DIR    Install below this directory [default: /usr/local for root, else ~/.local]
  --signer KEY    The public key that signs releases, such as 'ssh-ed25519 AAAA…'
  --nix-names     Also link floe under the names of Nix's programs, unless this machine has Nix
  --uninstall     Remove what this script has installed below the prefix
  -h, --help      Print help
END
}

say() {
	printf '%s\n' "$*" >&2
}

fail() {
	say "install.sh: $*"
	exit 1
}

has() {
	command -v "$1" >/dev/null 2>&1
}

# Fails unless an option has a value.
need_value() {
	[ "$#" -ge 2 ] || fail "cannot read the options: $1 needs a value; try --help"
}

read_options() {
	while [ "$#" -gt 0 ]; do
		case "$1" in
		--url)
			need_value "$@"
			url=$2
			shift
			;;
		--prefix)
			need_value "$@"
			prefix=$2
			shift
			;;
		--signer)
			need_value "$@"
			signer=$2
			shift
			;;
		--nix-names) link_names='yes' ;;
		--uninstall) action='uninstall' ;;
		-h | --help)
			usage
			exit 0
			;;
		*) fail "cannot read the options: $1 is unknown; try --help" ;;
		esac
		shift
	done
}

choose_prefix() {
	if [ -z "$prefix" ]; then
		if [ "$(id -u)" -eq 0 ]; then
			prefix='/usr/local'
		elif [ -n "${HOME:-}" ]; then
			prefix="$HOME/.local"
		else
			fail 'cannot choose a directory: HOME is not set; try --prefix DIR'
		fi
	fi
	case "$prefix" in
	/*) ;;
	*) prefix="$PWD/$prefix" ;;
	esac
	[ "$prefix" = / ] || prefix=${prefix%/}
}

# Prints the platform as the names of packages have it.
platform() {
	system=$(uname -s)
	[ "$system" = Linux ] || fail "cannot install floe on $system: it runs on Linux only"
	machine=$(uname -m)
	case "$machine" in
	x86_64 | amd64) echo 'x86_64-linux' ;;
	aarch64 | arm64) echo 'aarch64-linux' ;;
	*) fail "cannot install floe: there is no package for $machine; try building it from source" ;;
	esac
}

# Fails unless the programs that this script uses are there.
need_tools() {
	for tool in cat cp cut dirname grep gzip head mkdir mktemp mv rm rmdir sed sort tail tar \
		${link_names:+readlink}; do
		has "$tool" || fail "cannot install floe: there is no $tool; try installing it"
	done
}

# Prints a text as one word for a shell.
quoted() {
	printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}

# Fetches a file of the release. An https:// address never leads to a plain one.
fetch() {
	name=$1
	to="$temporary/$name"
	case "$url" in
	http://* | https://*)
		if has curl; then
			curl --fail --silent --show-error --location --retry 2 --proto "=${url%%:*},https" \
				--connect-timeout 30 --speed-limit 1 --speed-time 60 --output "$to" "$url/$name"
		elif has wget; then
			# With -q, GNU wget does not say why it fails.
			wget -O "$to" "$url/$name" 2>"$temporary/wget.log" || {
				tail -n 3 "$temporary/wget.log" >&2
				return 1
			}
			# The wget of busybox checks no certificate, and no wget refuses such a redirect.
			case "$url" in
			https://*)
				! grep -q -e 'validation not implemented' -e '^Location: http://' \
					"$temporary/wget.log" || server_unknown='yes'
				;;
			esac
		else
			fail 'cannot fetch the release: there is neither curl nor wget; try --url DIRECTORY'
		fi
		;;
	file://*) cp -- "${url#file://}/$name" "$to" ;;
	*) cp -- "$url/$name" "$to" ;;
	esac
}

fetch_or_fail() {
	if ! fetch "$1"; then
		hint='try again, another --url, or another TMPDIR if the disk is full'
		case "$url" in
		https://*)
			[ -e /etc/ssl/certs/ca-certificates.crt ] || [ -e /etc/pki/tls/certs/ca-bundle.crt ] ||
				[ -e /etc/ssl/ca-bundle.pem ] || [ -e /etc/ssl/cert.pem ] ||
				[ -n "${SSL_CERT_FILE:-}${CURL_CA_BUNDLE:-}" ] ||
				hint='this machine has no certificates; try installing ca-certificates'
			;;
		esac
		fail "cannot fetch $url/$1: see the message above; $hint"
	fi
}

# Prints the SHA-256 of a file.
sum_of() {
	if has sha256sum; then
		sha256sum "$1" | cut -d ' ' -f 1
	elif has shasum; then
		shasum -a 256 "$1" | cut -d ' ' -f 1
	elif has openssl; then
		openssl dgst -sha256 -r "$1" | cut -d ' ' -f 1
	else
		fail 'cannot check the SHA-256: there is no sha256sum, shasum or openssl; try installing one'
	fi
}

# Checks the signature of the sums. A signed release never passes without a signature.
check_signature() {
	if [ -z "$signer" ]; then
		skip_signature 'this script knows no key'
		return
	fi
	fetch_or_fail SHA256SUMS.sig
	if ! has ssh-keygen; then
		skip_signature 'there is no ssh-keygen'
		return
	fi
	printf 'floe namespaces="floe-release" %s\n' "$signer" >"$temporary/signers"
	ssh-keygen -Y verify -f "$temporary/signers" -I floe -n floe-release \
		-s "$temporary/SHA256SUMS.sig" <"$temporary/SHA256SUMS" >"$temporary/verify.log" 2>&1 ||
		refuse_signature
}

# Continues without a check of the signature, unless nothing else proves where the sums come from.
skip_signature() {
	[ -z "${server_unknown:-}" ] ||
		fail "cannot accept SHA256SUMS from $url: wget did not check the certificate of the server, and $1; try installing curl"
	say "The signature was not checked: $1."
}

refuse_signature() {
	# OpenSSH before 8.1 cannot verify signatures.
	if grep -q -e 'unknown option' -e 'illegal option' "$temporary/verify.log"; then
		skip_signature 'ssh-keygen is older than OpenSSH 8.1'
		return
	fi
	cat "$temporary/verify.log" >&2
	fail "cannot accept SHA256SUMS from $url: its signature is not by the key of floe"
}

# Fetches and checks the tarball, and sets `package` to its name without the suffix.
fetch_package() {
	for_platform=$(platform)
	fetch_or_fail SHA256SUMS
	check_signature
	line=$(grep -E "^[0-9a-f]{64}  floe-[0-9][0-9A-Za-z.+-]*-$for_platform\.tar\.gz\$" \
		"$temporary/SHA256SUMS" | head -n 1) || true
	[ -n "$line" ] || fail "cannot install floe: $url has no package for $for_platform"
	tarball=${line#*  }
	say "Fetching $tarball from $url."
	fetch_or_fail "$tarball"
	sum=$(sum_of "$temporary/$tarball")
	[ "$sum" = "${line%%  *}" ] ||
		fail "cannot accept $tarball: its SHA-256 is $sum, not ${line%%  *}; try again"
	package=${tarball%.tar.gz}
	# A full disk causes a message for each file.
	messages=$(tar -x -z -f "$temporary/$tarball" -C "$temporary" 2>&1) || {
		printf '%s\n' "$messages" | head -n 3 >&2
		fail "cannot unpack $tarball: see the message above; try another TMPDIR"
	}
	"$temporary/$package/bin/floe" --version >/dev/null ||
		fail "cannot run floe from $temporary: see the message above; try another TMPDIR"
}

# Creates a directory, and remembers each one that was missing.
make_directory() {
	[ ! -d "$1" ] || return 0
	make_directory "$(dirname "$1")"
	if mkdir -- "$1" 2>"$temporary/mkdir.log"; then
		printf 'directory %s\n' "$1" >>"$temporary/created"
	elif [ ! -d "$1" ]; then
		# No other run has created it meanwhile.
		cat "$temporary/mkdir.log" >&2
		fail "cannot create $1: see the message above; try --prefix DIR"
	fi
}

# Prints all files below a directory. Small systems have no `find`.
list_files() (
	for entry in "$1"/*; do
		if [ -d "$entry" ]; then
			list_files "$entry"
		elif [ -f "$entry" ]; then
			printf '%s\n' "$entry"
		fi
	done
)

# Copies all files beside their places, and renames them when every copy is complete.
install_files() {
	(cd "$temporary/$package" && list_files .) | sed 's|^\./||' >"$temporary/files"
	[ -s "$temporary/files" ] || fail "cannot install floe: $tarball has no files; try another --url"
	: >"$temporary/created"
	staged='yes'
	make_directory "$prefix/share/doc/floe"
	while read -r file; do
		[ ! -d "$prefix/$file" ] ||
			fail "cannot write $prefix/$file: it is a directory; try another --prefix"
		{ [ ! -e "$prefix/$file" ] && [ ! -L "$prefix/$file" ]; } || is_ours "$file" ||
			fail "cannot replace $prefix/$file: this script has not installed it; nothing was changed; remove it, or try another --prefix"
		make_directory "$(dirname "$prefix/$file")"
		cp -- "$temporary/$package/$file" "$prefix/$file$new" ||
			fail "cannot write $prefix/$file: see the message above; nothing was changed"
	done <"$temporary/files"
	name_program_in_unit
	write_record >"$prefix/$record$new" ||
		fail "cannot write $prefix/$record; nothing was changed"
	"$prefix/bin/floe$new" --version >/dev/null ||
		fail "cannot run floe below $prefix: see the message above; nothing was changed; try another --prefix"
	# The files of an older version that this one lacks.
	old_files | while read -r file; do
		grep -q -x -F -e "$file" "$temporary/files" || rm -f -- "$prefix/$file" || true
	done
	# The record comes first, so that each file below its final name is in it. After an interrupted
	# first run it also has files that are not there yet.
	mv -f -- "$prefix/$record$new" "$prefix/$record"
	while read -r file; do
		mv -f -- "$prefix/$file$new" "$prefix/$file"
	done <"$temporary/files"
	staged=''
}

# Whether this script has installed the file, perhaps an older version of it.
is_ours() {
	old_files | grep -q -x -F -e "$1"
}

# The unit of the packages starts /usr/bin/floe. It cannot start a program below a home directory,
# and a prefix with other characters would need quotes.
name_program_in_unit() {
	unit=share/doc/floe/examples/floe.service
	[ -f "$temporary/$package/$unit" ] || return 0
	case $prefix in
	/home/* | "${HOME:-/home}"/* | *[!A-Za-z0-9/._+@,=-]*) ;;
	*)
		sed "s|^ExecStart=/usr/bin/|ExecStart=$prefix/bin/|" "$temporary/$package/$unit" \
			>"$prefix/$unit$new" || fail "cannot write $prefix/$unit; nothing was changed"
		;;
	esac
}

# Prints what --uninstall has to remove.
write_record() {
	sed 's/^/file /' "$temporary/files"
	{
		[ ! -f "$prefix/$record" ] || grep -e '^directory ' -e '^link ' "$prefix/$record" || true
		cat "$temporary/created"
		# Before the links are there, so that an interrupted run leaves none that is not recorded.
		for name in ${link_names:+$nix_names}; do
			echo "link bin/$name"
		done
	} | sort -u
}

# Links floe under the names of Nix's programs. Beside a Nix, floe stays without links.
link_nix_names() {
	"$prefix/bin/floe" link-names "$prefix/bin" >/dev/null ||
		fail "cannot link floe under the names of Nix's programs: see the message above; floe is installed without them"
	say "Linked $prefix/bin/floe under the names $nix_names."
}

# Prints the files of the record. A path that leaves the prefix is not by this script.
old_files() {
	[ ! -f "$prefix/$record" ] ||
		sed -n -e '/^file \.\.\//d' -e '/\/\.\.\//d' -e 's/^file //p' "$prefix/$record"
}

# Prints the links of the record.
old_links() {
	sed -n -e '/\.\.\//d' -e 's/^link //p' "$prefix/$record"
}

uninstall() {
	[ -f "$prefix/$record" ] ||
		fail "cannot remove floe: this script has installed none below $prefix; try --prefix DIR"
	[ -w "$prefix/share/doc/floe" ] ||
		fail "cannot remove floe from $prefix: it is not writable; try as root"
	old_files | while read -r file; do
		# A run that was killed leaves copies beside their places.
		rm -f -- "$prefix/$file" "$prefix/$file".floe-new-*
	done
	rm -f -- "$prefix/$record".floe-new-*
	old_links | while read -r link; do
		# A link to a Nix that was installed later stays.
		[ "$(readlink -- "$prefix/$link" 2>/dev/null)" != floe ] || rm -f -- "$prefix/$link"
	done
	directories=$(sed -n 's/^directory //p' "$prefix/$record" | sort -r)
	rm -f -- "$prefix/$record"
	printf '%s\n' "$directories" | while read -r directory; do
		# A directory with files of others stays.
		[ -z "$directory" ] || rmdir -- "$directory" 2>/dev/null || true
	done
	say "Removed floe from $prefix."
}

# Removes temporary files, and after a failure everything that was only prepared.
clean_up() {
	[ -n "$temporary" ] || return 0
	if [ -n "${staged:-}" ]; then
		while read -r file; do
			rm -f -- "$prefix/$file$new"
		done <"$temporary/files"
		rm -f -- "$prefix/$record$new"
		sed -n 's/^directory //p' "$temporary/created" | sort -r | while read -r directory; do
			rmdir -- "$directory" 2>/dev/null || true
		done
	fi
	rm -rf -- "$temporary"
}

install_floe() {
	[ -n "$url" ] || fail 'cannot fetch the release: no address is set; try --url URL'
	url=${url%/}
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	need_tools
	temporary=$(mktemp -d "${TMPDIR:-/tmp}/floe-install.XXXXXX") ||
		fail "cannot create a directory in ${TMPDIR:-/tmp}; try another TMPDIR"
	fetch_package
	install_files
	version=$("$prefix/bin/floe" --version) ||
		fail "cannot run $prefix/bin/floe: see the message above; try another --prefix"
	say "Installed $version as $prefix/bin/floe."
	case ":$PATH:" in
	*":$prefix/bin:"*) ;;
	*) say "Add it to your PATH: export PATH=$(quoted "$prefix/bin"):\"\$PATH\"" ;;
	esac
	[ -z "$link_names" ] || link_nix_names
}

read_options "$@"
choose_prefix
case "$action" in
install) install_floe ;;
uninstall) uninstall ;;
esac
