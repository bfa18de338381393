# Evaluates module.nix with the library of nixpkgs, and stubs of the options of NixOS:
#
#     nix-instantiate --eval --strict --json --argstr lib PATH packaging/nix/module-check.nix
#
# PATH is the folder lib of a checkout of github.com/nix-community/nixpkgs.lib. Prints the units.
{ lib }:

let
  library = import lib;
  inherit (library) mkOption types;
  anything = mkOption {
    type = types.attrsOf types.anything;
    default = { };
  };
  stubs = {
    options = {
      assertions = mkOption { type = types.listOf types.anything; };
      networking.firewall.allowedTCPPorts = mkOption {
        type = types.listOf types.port;
        default = [ ];
      };
      systemd.packages = mkOption { type = types.listOf types.anything; };
      systemd.services = anything;
      systemd.sockets = anything;
    };
  };
  pkgs = {
    floe = {
      type = "derivation";
      outPath = "/nix/store/00000000000000000000000000000000-floe";
      meta.mainProgram = "floe";
    };
    formats.toml = _: {
      type = types.attrsOf types.anything;
      generate = name: value: "/nix/store/00000000000000000000000000000000-${name}";
    };
  };
  evaluate =
    settings:
    (library.evalModules {
      modules = [
        ./module.nix
        stubs
        {
          _module.args.pkgs = pkgs;
          services.floe-serve = settings // {
            enable = true;
          };
        }
      ];
    }).config;
  shown = config: {
    inherit (config.systemd) services sockets;
    failed = library.filter (it: !it.assertion) config.assertions;
    ports = config.networking.firewall.allowedTCPPorts;
  };
in
{
  default = shown (evaluate { });
  internet = shown (evaluate {
    secretKeyFile = "/var/lib/secrets/cache.key";
    listenStreams = [ "443" ];
    metricsListenStreams = [ "127.0.0.1:9100" ];
    openFirewall = true;
    settings.tls_cert = "/var/lib/acme/cache/fullchain.pem";
  });
  store = shown (evaluate {
    settings.receive_into_store = "/var/lib/floe-serve";
  });
  wrong = (shown (evaluate { settings.listen = ":80"; })).failed;
}
