# Evaluates module.nix with the library of nixpkgs, and stubs of the options of NixOS:
#
#     nix-instantiate --eval --strict --json --argstr lib PATH packaging/nix/module-check.nix
#
# PATH is the folder lib of a checkout of github.com/nix-community/nixpkgs.lib. Prints the units.
#
# With `--argstr nixServe FILE`, it also evaluates the module of nix-serve with the package of floe.
# FILE is nixos/modules/services/networking/nix-serve.nix of nixpkgs, which is not a part of nixpkgs.lib.
{
  lib,
  nixServe ? null,
}:

let
  library = import lib;
  inherit (library) mkOption types;
  anything = mkOption {
    type = types.attrsOf types.anything;
    default = { };
  };
  stubs = {
    options = {
      assertions = mkOption {
        type = types.listOf types.anything;
        default = [ ];
      };
      networking.firewall.allowedTCPPorts = mkOption {
        type = types.listOf types.port;
        default = [ ];
      };
      nix.package = mkOption { type = types.anything; };
      nix.settings = anything;
      systemd.packages = mkOption {
        type = types.listOf types.anything;
        default = [ ];
      };
      systemd.services = anything;
      systemd.sockets = anything;
    };
  };
  stub =
    name: attributes:
    attributes
    // rec {
      inherit name;
      type = "derivation";
      outPath = "/nix/store/00000000000000000000000000000000-${name}";
      out = outPath;
      bin = outPath;
    };
  # The package by the overlay, without a build.
  inherit
    (import ./overlay.nix {
      callPackage =
        file: given:
        import file (
          {
            lib = library;
            rustPlatform.buildRustPackage = stub "floe";
            installShellFiles = stub "install-shell-files" { };
          }
          // given
        );
    } { })
    floe
    ;
  pkgs = {
    inherit floe;
    bzip2 = stub "bzip2" { };
    coreutils = stub "coreutils" { };
    formats.toml = _: {
      type = types.attrsOf types.anything;
      generate = name: value: "/nix/store/00000000000000000000000000000000-${name}";
    };
    nix-serve = stub "nix-serve" { };
  };
  evaluate =
    module: services:
    (library.evalModules {
      modules = [
        module
        stubs
        {
          _module.args.pkgs = pkgs;
          nix.package = stub "nix" { version = "2.34.0"; };
          inherit services;
        }
      ];
    }).config;
  shown = config: {
    inherit (config.systemd) services sockets;
    failed = map (it: it.message) (library.filter (it: !it.assertion) config.assertions);
    ports = config.networking.firewall.allowedTCPPorts;
  };
  floeServe =
    settings: shown (evaluate ./module.nix { floe-serve = settings // { enable = true; }; });
in
{
  default = floeServe { };
  internet = floeServe {
    secretKeyFile = "/var/lib/secrets/cache.key";
    supplementaryGroups = [ "acme" ];
    listenStreams = [ "443" ];
    metricsListenStreams = [ "127.0.0.1:5001" ];
    openFirewall = true;
    settings.tls_cert = "/var/lib/acme/cache/fullchain.pem";
  };
  cache = floeServe {
    authFile = "/var/lib/secrets/cache.logins";
    settings.receive = "/var/lib/floe/";
  };
  store = floeServe {
    settings.auth_file = "/var/lib/secrets/cache.logins";
    settings.receive_into_store = "/var/lib/floe/uploads";
  };
  # Each of these has a message.
  wrong =
    map (settings: (floeServe { inherit settings; }).failed) [
      { listen = ":80"; }
      {
        host = "*";
        port = 80;
      }
      { socket = "/run/floe/socket"; }
      { bind = "[::]:80"; }
      { metrics_listen = ":9100"; }
      { receive = "/srv/cache"; }
      { receive = "/var/lib/private/floe"; }
      { receive = "/var/lib/../../srv"; }
      { receive_into_store = "/var/lib"; }
      { auth_file = "/etc/floe/logins"; }
    ];
}
// library.optionalAttrs (nixServe != null) {
  nixServe =
    let
      config = evaluate nixServe {
        nix-serve = {
          enable = true;
          package = floe;
          secretKeyFile = "/var/lib/secrets/cache.key";
          openFirewall = true;
          extraParams = "--priority 40";
        };
      };
    in
    {
      inherit (config.systemd.services.nix-serve) script serviceConfig environment;
      ports = config.networking.firewall.allowedTCPPorts;
      # The program that the script runs.
      isInPackage = library.hasInfix "ln -s floe $out/bin/nix-serve\n" floe.postInstall;
    };
}
