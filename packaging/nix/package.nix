# Evaluated by the tests with a stub of nixpkgs. Not built yet.
{
  lib,
  rustPlatform,
  installShellFiles,
  # Links to floe under the names of Nix's programs, for a profile that has no Nix.
  withNixNames ? false,
}:

let
  workspace = (builtins.fromTOML (builtins.readFile ../../Cargo.toml)).workspace.package;
in
rustPlatform.buildRustPackage {
  pname = "floe";
  inherit (workspace) version;

  src = lib.cleanSourceWith {
    src = lib.cleanSource ../..;
    # The builds of cargo can take gigabytes.
    filter = path: type: path != toString ../../target;
  };
  cargoLock.lockFile = ../../Cargo.lock;
  cargoBuildFlags = [
    "--package"
    "floe-cli"
  ];
  # The tests need root, namespaces and other servers; `cargo xtask test` runs them.
  doCheck = false;

  nativeBuildInputs = [ installShellFiles ];
  postInstall = ''
    $out/bin/floe man man
    installManPage man/*.1
    installShellCompletion --cmd floe \
      --bash <($out/bin/floe completions bash) \
      --fish <($out/bin/floe completions fish) \
      --zsh <($out/bin/floe completions zsh)
    for unit in floe.service floe.socket floe-metrics.socket; do
      install -D -m 644 packaging/systemd/$unit -t $out/lib/systemd/system
    done
    substituteInPlace $out/lib/systemd/system/floe.service --replace-fail /usr/bin $out/bin
    # `services.nix-serve` of NixOS runs this program of its package.
    ln -s floe $out/bin/nix-serve
  ''
  + lib.optionalString withNixNames ''
    for name in nix nix-collect-garbage nix-copy-closure nix-daemon nix-env nix-store; do
      ln -s floe $out/bin/$name
    done
  '';

  meta = {
    description = "Copies Nix closures between stores and binary caches, without needing Nix";
    inherit (workspace) homepage;
    license = [
      lib.licenses.mit
      lib.licenses.asl20
    ];
    mainProgram = "floe";
    platforms = [
      "x86_64-linux"
      "aarch64-linux"
    ];
  };
}
