// Asks a question about a text file with the built-in model:  ask FILE QUESTION
#include <fstream>
#include <iostream>
#include <sstream>

#include <godwit/engine.h>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: ask FILE QUESTION\n";
    return 2;
  }
  std::ifstream file(argv[1]);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    std::cerr << argv[1] << " cannot be read\n";
    return 1;
  }

  auto engine = godwit::Engine::open({});
  if (!engine) {
    std::cerr << engine.error().message << "\n";
    return 1;
  }
  const godwit::ChatMessage message{"user", text.str() + "\n\n" + argv[2]};
  auto prompt = engine->chat_tokens({&message, 1});
  if (!prompt) {
    std::cerr << prompt.error().message << "\n";
    return 1;
  }
  godwit::Session session = engine->start();
  if (auto status = session.append(*prompt); !status) {
    std::cerr << status.error().message << "\n";
    return 1;
  }
  auto answer = session.generate({.max_tokens = 64}, [](const godwit::Piece& piece) {
    std::cout << piece.text << std::flush;
    return true;
  });
  std::cout << "\n";
  if (!answer) {
    std::cerr << answer.error().message << "\n";
    return 1;
  }
}
